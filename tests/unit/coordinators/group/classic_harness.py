"""A minimal coordinator for one classic group: a log, timers and a clock that tests advance.

Carries results out as a shard does: records are replayed at once, responses wait for the commit.
Invariant: a call gets at most one response, and never before its records are committed.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from tests.unit.coordinators.group.fake_topics import FakeTopics

from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.classic.state import replay
from penstock.coordinators.group.command_context import CommandEnvironment
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.records import (
    GroupRecord,
    GroupValue,
    decode_record,
    encode_record,
)
from penstock.coordinators.group.requests import (
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
    SyncGroupReply,
)
from penstock.coordinators.group.timer_key import TimerKey
from penstock.coordinators.runtime.result import LATER, CoordinatorResult, SetTimer, Waiter
from penstock.model.errors import ErrorCode
from penstock.protocol.coordinator_values import ValueWriter

GROUP = "billing"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_000_000
NO_TOPICS = FakeTopics()  # the leader of a classic group watches topics, not the broker


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """Encode a consumer's subscription in version 0, with which all later versions start."""
    writer = ValueWriter(flexible=False)
    writer.int16(0)
    writer.array(topics, ValueWriter.string)
    writer.data(user_data)
    return writer.done()


@dataclass(slots=True)
class Call:
    """A request that was sent, and its response once there is one."""

    reply: Any = None
    on_reply: Callable[[Any], None] = lambda reply: None

    @property
    def waits(self) -> bool:
        return self.reply is None

    @property
    def error(self) -> ErrorCode | None:
        """The error code of the response, or None while it is pending."""
        if self.reply is None or isinstance(self.reply, ErrorCode):
            return self.reply
        error: ErrorCode = self.reply.error
        return error


class _Parked(NamedTuple):
    log_end: int
    waiter: Waiter
    reply: object


class ClassicGroupHarness:
    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.now_ms = START_MS
        self.group = ClassicGroup(GROUP)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.commits_at_once = True
        self.timers: dict[TimerKey, int] = {}
        self._calls: dict[Waiter, Call] = {}
        self._parked: list[_Parked] = []
        self._waiters = itertools.count(1)
        self._ids = itertools.count(1)

    @property
    def environment(self) -> CommandEnvironment:
        return CommandEnvironment(self.now_ms, self.config, NO_TOPICS)

    # -- requests --------------------------------------------------------------------------

    def join(
        self, request: JoinGroup, on_reply: Callable[[Any], None] = lambda reply: None
    ) -> Call:
        return self._run(
            lambda waiter: self.group.join(request, waiter, self.environment, new_id=self._new_id),
            on_reply,
        )

    def sync(
        self, request: SyncGroup, on_reply: Callable[[Any], None] = lambda reply: None
    ) -> Call:
        return self._run(
            lambda waiter: self.group.sync(request, waiter, self.environment),
            on_reply,
        )

    def heartbeat(self, request: Heartbeat) -> Call:
        return self._run(lambda _: self.group.heartbeat(request, self.environment))

    def leave(self, *leavers: LeavingMember) -> Call:
        return self._run(lambda _: self.group.leave(leavers, self.environment))

    def delete(self) -> Call:
        return self._run(lambda _: self.group.delete(self.environment))

    def release(self, error: ErrorCode) -> None:
        self._run(lambda _: self.group.release(error, self.environment))

    # -- time ------------------------------------------------------------------------------

    def pass_time(self, delay_ms: int) -> None:
        """Advance the clock and fire every due timer in order."""
        end_ms = self.now_ms + delay_ms
        while (key := self.next_timer()) is not None and self.timers[key] <= end_ms:
            self.fire(key)
        self.now_ms = end_ms

    def next_timer(self) -> TimerKey | None:
        return min(self.timers, key=self.timers.__getitem__, default=None)

    def fire(self, key: TimerKey) -> None:
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        self._run(lambda _: self.group.on_timer(key, self.environment))

    # -- the log ---------------------------------------------------------------------------

    def commit(self) -> None:
        self.committed = len(self.log)
        self._deliver()

    def fail_writes(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Drop uncommitted records; the state becomes a replay of the log."""
        del self.log[self.committed :]
        self.restart(error)

    def restart(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Reload the group; pending requests get the error."""
        for waiter in list(self._calls):
            self._answer(waiter, error)
        self._parked.clear()
        self.timers.clear()
        self.group = replay_log(self.log)
        self._run(lambda _: self.group.on_loaded(self.environment))

    @property
    def waiting(self) -> int:
        """Return calls without a response, except those that only wait for a commit."""
        return len(self._calls) - len(self._parked)

    @property
    def last_value(self) -> GroupValue | None:
        record = decode_record(*self.log[-1])
        assert isinstance(record.value, GroupValue | None)
        return record.value

    # -- internals -------------------------------------------------------------------------

    def _run(
        self,
        decide: Callable[[Waiter], CoordinatorResult[Any, GroupRecord]],
        on_reply: Callable[[Any], None] = lambda reply: None,
    ) -> Call:
        waiter = Waiter(next(self._waiters))
        call = self._calls[waiter] = Call(on_reply=on_reply)
        result = decide(waiter)
        for record in result.records:
            self._write(record)
        for change in result.timers:
            assert isinstance(change.key, TimerKey)
            self.timers.pop(change.key, None)
            if isinstance(change, SetTimer):
                assert change.delay_ms >= 0, change
                self.timers[change.key] = self.now_ms + change.delay_ms
        if result.reply is not LATER:
            self._park(waiter, result.reply)
        for deferred in result.deferred_replies:
            self._park(deferred.waiter, deferred.reply)
        if self.commits_at_once:
            self.commit()
        self._deliver()
        return call

    def _write(self, record: GroupRecord) -> None:
        entry = encode_record(record)
        self.log.append(entry)
        value = decode_record(*entry).value
        assert isinstance(value, GroupValue | None)
        replay(self.group, value)

    def _park(self, waiter: Waiter, reply: object) -> None:
        assert waiter in self._calls, f"{waiter} gets a second reply, or was never sent"
        assert all(parked.waiter != waiter for parked in self._parked), (
            f"{waiter} gets a second reply"
        )
        self._parked.append(_Parked(len(self.log), waiter, reply))

    def _deliver(self) -> None:
        ready = [parked for parked in self._parked if parked.log_end <= self.committed]
        self._parked = [parked for parked in self._parked if parked.log_end > self.committed]
        for parked in ready:
            self._answer(parked.waiter, parked.reply)

    def _answer(self, waiter: Waiter, reply: object) -> None:
        call = self._calls.pop(waiter)
        call.reply = reply
        call.on_reply(reply)

    def _new_id(self) -> UUID:
        return UUID(int=next(self._ids))


def replay_log(log: list[tuple[bytes, bytes | None]]) -> ClassicGroup:
    """Return the group after a restart."""
    group = ClassicGroup(GROUP)
    for entry in log:
        value = decode_record(*entry).value
        assert isinstance(value, GroupValue | None)
        if value is None:
            group = ClassicGroup(GROUP)
        else:
            replay(group, value)
    return group


@dataclass(slots=True)
class Client:
    """One consumer, which keeps its responses as a real one does."""

    harness: ClassicGroupHarness
    name: str
    instance: str | None = None
    topics: tuple[str, ...] = ("orders",)
    assignors: tuple[str, ...] = ("range",)
    requires_known_member: bool = True
    supports_skipping: bool = True
    session_timeout_ms: int = SESSION_MS
    rebalance_timeout_ms: int = REBALANCE_MS
    id: str = ""
    generation: int = -1
    joined: JoinGroupReply | None = None
    synced: SyncGroupReply | None = None
    calls: list[Call] = field(default_factory=list)

    @property
    def leads(self) -> bool:
        return self.joined is not None and self.joined.leader == self.id

    def join(self, **changes: Any) -> Call:
        call = self.harness.join(self.join_request(**changes), self._on_joined)
        self.calls.append(call)
        return call

    def come(self) -> Call:
        """Join as current clients do: get an id, then join with it."""
        call = self.join()
        if call.error is ErrorCode.MEMBER_ID_REQUIRED:
            call = self.join()
        return call

    def sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> Call:
        fields = {
            "group": GROUP,
            "member": self.id,
            "instance": self.instance,
            "generation": self.generation,
            "protocol_type": "consumer",
            "protocol": self.joined.protocol if self.joined else None,
            "assignments": assignments or {},
        }
        call = self.harness.sync(SyncGroup(**{**fields, **changes}), self._on_synced)
        self.calls.append(call)
        return call

    def assign(self) -> Call:
        """Sync as the leader, with an assignment for each member of this generation."""
        assert self.joined is not None
        assert self.joined.members, f"{self.name} does not lead"
        return self.sync(
            {
                member.member: work_of(member.member, self.generation)
                for member in self.joined.members
            }
        )

    def heartbeat(self, **changes: Any) -> ErrorCode:
        reply = self.harness.heartbeat(self.heartbeat_request(**changes)).reply
        assert isinstance(reply, ErrorCode)
        return reply

    def leave(self) -> ErrorCode:
        reply = self.harness.leave(LeavingMember(self.id, self.instance)).reply
        error = reply[1][0].error
        assert isinstance(error, ErrorCode)
        return error

    def heartbeat_request(self, **changes: Any) -> Heartbeat:
        fields = {
            "group": GROUP,
            "member": self.id,
            "instance": self.instance,
            "generation": self.generation,
        }
        return Heartbeat(**{**fields, **changes})

    def join_request(self, **changes: Any) -> JoinGroup:
        metadata = subscription(*self.topics)
        fields = {
            "group": GROUP,
            "member": self.id,
            "instance": self.instance,
            "client_id": self.name,
            "client_host": "/127.0.0.1",
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "protocol_type": "consumer",
            "protocols": tuple(MemberProtocol(assignor, metadata) for assignor in self.assignors),
            "requires_known_member": self.requires_known_member,
            "supports_skipping_assignment": self.supports_skipping,
        }
        return JoinGroup(**{**fields, **changes})

    def _on_joined(self, reply: object) -> None:
        if isinstance(reply, JoinGroupReply):
            if reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.id = reply.member
                self.generation = reply.generation
            if reply.error is ErrorCode.NONE:
                self.joined = reply

    def _on_synced(self, reply: object) -> None:
        if isinstance(reply, SyncGroupReply):
            self.synced = reply


def work_of(member: str, generation: int) -> bytes:
    return f"the work of {member} in {generation}".encode()


def settle(*clients: Client) -> None:
    """Let all join and the leader assign, until the group is stable with just these."""
    for client in clients:
        client.come()
    rejoin(*clients)


def rejoin(*clients: Client) -> None:
    for client in clients:
        if client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            client.join()
    for client in sorted(clients, key=lambda client: client.leads):  # the leader last
        if client.leads:
            client.assign()
        else:
            client.sync()
