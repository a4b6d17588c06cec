"""A coordinator in small for one classic group: a log, timers and a clock that tests move.

Carries outcomes out as a shard does: records are replayed at once, answers wait for the commit.
Invariant: a call is answered at most once, and never before the records it rests on are committed.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from penstock.coordinators.group.classic import protocol as classic
from penstock.coordinators.group.classic.protocol import ClassicGroup
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
from penstock.coordinators.group.result import LATER, GroupResult, SetTimer, TimerKey
from penstock.coordinators.runtime.pending_replies import Waiter
from penstock.model.errors import ErrorCode
from penstock.protocol.coordinator_values import ValueWriter

GROUP = "billing"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_000_000


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """What a consumer tells its group, in the version that all others begin with."""
    writer = ValueWriter(flexible=False)
    writer.int16(0)
    writer.array(topics, ValueWriter.string)
    writer.data(user_data)
    return writer.done()


@dataclass(slots=True)
class Call:
    """A request that was sent, and its answer once there is one."""

    answer: Any = None
    told: Callable[[Any], None] = lambda answer: None

    @property
    def waits(self) -> bool:
        return self.answer is None

    @property
    def error(self) -> ErrorCode | None:
        """None: it waits."""
        if self.answer is None or isinstance(self.answer, ErrorCode):
            return self.answer
        error: ErrorCode = self.answer.error
        return error


class _Parked(NamedTuple):
    log_end: int
    waiter: Waiter
    answer: object


class Desk:
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

    # -- requests --------------------------------------------------------------------------

    def join(self, request: JoinGroup, told: Callable[[Any], None] = lambda answer: None) -> Call:
        return self._run(
            lambda waiter: classic.join(
                self.group, request, waiter, self.now_ms, self.config, new_id=self._new_id
            ),
            told,
        )

    def sync(self, request: SyncGroup, told: Callable[[Any], None] = lambda answer: None) -> Call:
        return self._run(
            lambda waiter: classic.sync(self.group, request, waiter, self.now_ms, self.config),
            told,
        )

    def heartbeat(self, request: Heartbeat) -> Call:
        return self._run(lambda _: classic.heartbeat(self.group, request, self.now_ms, self.config))

    def leave(self, *leavers: LeavingMember) -> Call:
        return self._run(lambda _: classic.leave(self.group, leavers, self.now_ms, self.config))

    def delete(self) -> Call:
        return self._run(lambda _: classic.delete(self.group, self.now_ms, self.config))

    def release(self, error: ErrorCode) -> None:
        self._run(lambda _: classic.release(self.group, error, self.now_ms, self.config))

    # -- time ------------------------------------------------------------------------------

    def pass_time(self, delay_ms: int) -> None:
        """Every timer that is due goes off, in order."""
        end_ms = self.now_ms + delay_ms
        while (key := self.next_timer()) is not None and self.timers[key] <= end_ms:
            self.fire(key)
        self.now_ms = end_ms

    def next_timer(self) -> TimerKey | None:
        return min(self.timers, key=self.timers.__getitem__, default=None)

    def fire(self, key: TimerKey) -> None:
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        self._run(lambda _: classic.on_timer(self.group, key, self.now_ms, self.config))

    # -- the log ---------------------------------------------------------------------------

    def commit(self) -> None:
        self.committed = len(self.log)
        self._deliver()

    def fail_writes(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """What is not committed is lost; the state is what the log gives."""
        del self.log[self.committed :]
        self.restart(error)

    def restart(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The group is loaded anew; whoever waits learns of the error."""
        for waiter in list(self._calls):
            self._answer(waiter, error)
        self._parked.clear()
        self.timers.clear()
        self.group = replayed(self.log)
        self._run(lambda _: classic.on_loaded(self.group, self.now_ms, self.config))

    @property
    def waiting(self) -> int:
        """Calls without an answer, but for those that only wait for a commit."""
        return len(self._calls) - len(self._parked)

    @property
    def last_value(self) -> GroupValue | None:
        record = decode_record(*self.log[-1])
        assert isinstance(record.value, GroupValue | None)
        return record.value

    # -- within ----------------------------------------------------------------------------

    def _run(
        self,
        decide: Callable[[Waiter], GroupResult[Any]],
        told: Callable[[Any], None] = lambda answer: None,
    ) -> Call:
        waiter = Waiter(next(self._waiters))
        call = self._calls[waiter] = Call(told=told)
        outcome = decide(waiter)
        for record in outcome.records:
            self._write(record)
        for change in outcome.timers:
            self.timers.pop(change.key, None)
            if isinstance(change, SetTimer):
                assert change.delay_ms >= 0, change
                self.timers[change.key] = self.now_ms + change.delay_ms
        if outcome.answer is not LATER:
            self._park(waiter, outcome.answer)
        for reply in outcome.replies:
            self._park(reply.to, reply.answer)
        if self.commits_at_once:
            self.commit()
        self._deliver()
        return call

    def _write(self, record: GroupRecord) -> None:
        entry = encode_record(record)
        self.log.append(entry)
        value = decode_record(*entry).value
        assert isinstance(value, GroupValue | None)
        classic.replay(self.group, value)

    def _park(self, waiter: Waiter, answer: object) -> None:
        assert waiter in self._calls, f"{waiter} is answered twice, or was never asked"
        assert all(parked.waiter != waiter for parked in self._parked), (
            f"{waiter} is answered twice"
        )
        self._parked.append(_Parked(len(self.log), waiter, answer))

    def _deliver(self) -> None:
        ready = [parked for parked in self._parked if parked.log_end <= self.committed]
        self._parked = [parked for parked in self._parked if parked.log_end > self.committed]
        for parked in ready:
            self._answer(parked.waiter, parked.answer)

    def _answer(self, waiter: Waiter, answer: object) -> None:
        call = self._calls.pop(waiter)
        call.answer = answer
        call.told(answer)

    def _new_id(self) -> UUID:
        return UUID(int=next(self._ids))


def replayed(log: list[tuple[bytes, bytes | None]]) -> ClassicGroup:
    """What the log gives after a restart."""
    group = ClassicGroup(GROUP)
    for entry in log:
        value = decode_record(*entry).value
        assert isinstance(value, GroupValue | None)
        if value is None:
            group = ClassicGroup(GROUP)
        else:
            classic.replay(group, value)
    return group


@dataclass(slots=True)
class Client:
    """One consumer: remembers what it was told, as real ones do."""

    desk: Desk
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
        call = self.desk.join(self.join_request(**changes), self._on_joined)
        self.calls.append(call)
        return call

    def come(self) -> Call:
        """Joins as a client of today does: asks for an id, then comes with it."""
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
        call = self.desk.sync(SyncGroup(**{**fields, **changes}), self._on_synced)
        self.calls.append(call)
        return call

    def assign(self) -> Call:
        """Syncs as the leader, with a piece of work for each member of this generation."""
        assert self.joined is not None
        assert self.joined.members, f"{self.name} does not lead"
        return self.sync(
            {
                member.member: work_of(member.member, self.generation)
                for member in self.joined.members
            }
        )

    def heartbeat(self, **changes: Any) -> ErrorCode:
        answer = self.desk.heartbeat(self.heartbeat_request(**changes)).answer
        assert isinstance(answer, ErrorCode)
        return answer

    def leave(self) -> ErrorCode:
        answer = self.desk.leave(LeavingMember(self.id, self.instance)).answer
        error = answer[1][0].error
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

    def _on_joined(self, answer: object) -> None:
        if isinstance(answer, JoinGroupReply):
            if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.id = answer.member
                self.generation = answer.generation
            if answer.error is ErrorCode.NONE:
                self.joined = answer

    def _on_synced(self, answer: object) -> None:
        if isinstance(answer, SyncGroupReply):
            self.synced = answer


def work_of(member: str, generation: int) -> bytes:
    return f"the work of {member} in {generation}".encode()


def settle(*clients: Client) -> None:
    """All come, and those who lead assign, until the group is stable with just these."""
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
