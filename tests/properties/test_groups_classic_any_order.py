"""Whatever members do in whatever order, with failing writes, a classic group keeps its guarantees.

One generation at a time; one response per request; every assignment is the leader's; and the state
equals a replay of the log, whole or compacted.
"""

from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.profile import scaled
from tests.unit.coordinators.group.classic_harness import (
    Call,
    ClassicGroupHarness,
    Client,
    replay_log,
)

from penstock.coordinators.group.classic.state import ClassicMember, ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.member_bytes import PENDING_BYTES
from penstock.coordinators.group.requests import JoinGroupReply, LeavingMember, SyncGroupReply
from penstock.coordinators.group.timer_key import TimerKey
from penstock.model.errors import ErrorCode

CLIENTS = st.integers(0, 5)
ASSIGNORS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])
TOPICS = st.sampled_from([("orders",), ("orders", "returns")])
SHORT_MS = st.sampled_from([1, 2000, 3000, 4000])
LONG_MS = st.sampled_from([9999, 10_000, 60_000, 400_000])
INITIAL_DELAYS_MS = st.sampled_from([0, 3000])


class Watched(Client):
    """Checks each response, and forgets its member id when a response says so."""

    seen: "Ledger"

    def _on_joined(self, reply: object) -> None:
        super()._on_joined(reply)
        if isinstance(reply, JoinGroupReply):
            self.seen.on_joined(self, reply)
            if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.id = ""

    def sync(self, assignments: Any = None, **changes: Any) -> Call:
        """Remembers the generation of the request, because the response may come much later."""
        generation, whose = self.generation, self.instance or self.id
        call = super().sync(assignments, **changes)
        call.on_reply = lambda reply: self.seen.on_synced(generation, whose, reply)
        if call.reply is not None:
            call.on_reply(call.reply)
        return call


class Ledger:
    """What responses said about the generations of one incarnation of the coordinator."""

    def __init__(self) -> None:
        self.generations: dict[int, tuple[str | None, str | None]] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}  # generation -> instance or member id
        self.newest = 0

    def on_joined(self, client: Client, reply: JoinGroupReply) -> None:
        if reply.error is not ErrorCode.NONE:
            return
        assert reply.generation >= self.newest, "an old generation is handed out"
        self.newest = reply.generation
        elected = (reply.protocol_type, reply.protocol)
        assert self.generations.setdefault(reply.generation, elected) == elected
        assert reply.member
        assert (client.instance or client.name) in reply.member
        if reply.members:
            assert client.id in {member.member for member in reply.members}

    def on_assigned(self, generation: int, assigned: dict[str, bytes]) -> None:
        assert generation not in self.assigned, "one generation is assigned twice"
        self.assigned[generation] = assigned

    def on_synced(self, generation: int, whose: str, reply: object) -> None:
        if isinstance(reply, SyncGroupReply) and reply.error is ErrorCode.NONE:
            assert reply.assignment == self.assigned[generation][whose]
            assert reply.assignment


class AnyOrder(RuleBasedStateMachine):
    @initialize(
        delay_ms=INITIAL_DELAYS_MS,
        max_size=st.sampled_from([3, 100]),
        first=st.lists(CLIENTS, unique=True, max_size=4),
    )
    def begin(self, delay_ms: int, max_size: int, first: list[int]) -> None:
        self.harness = ClassicGroupHarness(
            GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        )
        self.ledger = Ledger()
        self.payloads = 0
        self.everyone: list[Watched] = []  # including clients that returned under another member id
        self.clients = [self._new_client(index) for index in range(6)]
        for index in first:
            self.join(index=index)
        self.harness.pass_time(6000)
        self.all_follow_the_protocol()

    def _new_client(self, index: int) -> Watched:
        instance = f"static-{index}" if index in (1, 2) else None
        old_style = index in (2, 3)
        client = Watched(
            self.harness,
            f"member-{index}",
            instance=instance,
            requires_known_member=not old_style,
            supports_skipping=not old_style,
        )
        client.seen = self.ledger
        self.everyone.append(client)
        return client

    # -- what members do -------------------------------------------------------------------

    @rule(index=CLIENTS)
    def join(self, index: int) -> None:
        client = self.clients[index]
        if client.come().error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.id = ""

    @rule(index=CLIENTS, topics=TOPICS, assignors=ASSIGNORS)
    def join_changed(self, index: int, topics: tuple[str, ...], assignors: tuple[str, ...]) -> None:
        client = self.clients[index]
        client.topics, client.assignors = topics, assignors
        self.join(index=index)

    @rule(index=CLIENTS)
    def come_back_without_an_id(self, index: int) -> None:
        """After a crash. The old id of a dynamic member stays behind."""
        self.clients[index] = self._new_client(index)
        self.clients[index].come()

    @rule()
    def ask_for_an_id_only(self) -> None:
        Client(self.harness, "passer-by").join()

    @rule(index=CLIENTS)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        if client.joined is not None and client.joined.members:
            self._sync_as_leader(client)
        else:
            client.sync({client.id: b"I assign this to myself"})

    @rule()
    def all_follow_the_protocol(self) -> None:
        """Without it few groups of several members would ever be stable."""
        self.harness.commit()
        for client in self.clients:
            if client.id and self._hears_of_rebalance(client):
                client.join()
        for index in sorted(range(6), key=lambda number: self.clients[number].leads):
            if self.clients[index].id:
                self.sync(index=index)

    @rule(index=CLIENTS)
    def heartbeat(self, index: int) -> None:
        self._hears_of_rebalance(self.clients[index])

    @rule(index=CLIENTS, by_instance=st.booleans())
    def leave(self, index: int, by_instance: bool) -> None:
        client = self.clients[index]
        self.harness.leave(
            LeavingMember("" if by_instance else client.id, client.instance),
            LeavingMember("stranger", None),
        )

    # -- what happens to them --------------------------------------------------------------

    @rule(delay_ms=SHORT_MS)
    def pass_time(self, delay_ms: int) -> None:
        self.harness.pass_time(delay_ms)

    @precondition(lambda self: self.harness.timers)
    @rule()
    def next_timer(self) -> None:
        key = self.harness.next_timer()
        assert key is not None
        self.harness.fire(key)

    @rule(at_once=st.booleans())
    def commit(self, at_once: bool) -> None:
        self.harness.commit()
        self.harness.commits_at_once = at_once

    @rule(data=st.data())
    def suffer(self, data: st.DataObject) -> None:
        """One rule for all disruptive events, so that the others have time in between."""
        troubles = [self._restart, self._fail_writes, self._delete, self._all_are_silent]
        data.draw(st.sampled_from(troubles))(data)

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def the_state_is_what_the_log_gives(self) -> None:
        group, log = self.harness.group, self.harness.log
        again, compacted = replay_log(log), replay_log(log[-1:])
        assert again.stored == group.stored == compacted.stored
        if group.state in (ClassicState.STABLE, ClassicState.EMPTY):
            assert again.describe() == group.describe()
            assert compacted.describe() == group.describe()
        if group.state is ClassicState.STABLE:
            assigned = {member.id: member.assignment for member in group.members.values()}
            assert group.record(assigned, group.state_since_ms).value == group.stored

    @invariant()
    def whatever_waits_has_an_end(self) -> None:
        group, timers = self.harness.group, self.harness.timers
        for member in group.members.values():
            assert member.is_waiting or self._key("session", member.id) in timers
        for member_id in group.pending:
            assert self._key("session", member_id) in timers
        if group.state is ClassicState.PREPARING_REBALANCE:
            assert self._key("join") in timers
        if group.unsynced:
            assert self._key("sync") in timers

    @invariant()
    def whoever_waits_does_so_for_the_phase_that_runs(self) -> None:
        group = self.harness.group
        members = group.members.values()
        joining = [member for member in members if member.join_waiter is not None]
        syncing = [member for member in members if member.sync_waiter is not None]
        assert self.harness.waiting == len(joining) + len(syncing)
        assert group.joining == len(joining)
        assert not joining or group.state is ClassicState.PREPARING_REBALANCE
        assert not syncing or group.state is ClassicState.COMPLETING_REBALANCE

    @invariant()
    def the_members_fit_together(self) -> None:
        group = self.harness.group
        names = {member.instance: member.id for member in group.members.values() if member.instance}
        assert group.instances == names
        assert not group.pending & group.members.keys()
        assert group.unsynced <= group.members.keys()
        assert group.member_bytes == sum(map(ClassicMember.count_bytes, group.members.values()))
        assert group.pending.bytes == sum(PENDING_BYTES + len(member) for member in group.pending)
        assert not group.members or group.leader in group.members
        assert (group.state is ClassicState.EMPTY) <= (not group.members)
        offers = [member.protocols for member in group.members.values()]
        common = [one for one in ("range", "sticky") if all(one in dict(offer) for offer in offers)]
        assert not group.members or group.elect_protocol() in common
        if group.members and group.state is not ClassicState.PREPARING_REBALANCE:
            assert group.protocol is not None
            assert all(member.find_metadata(group.protocol) for member in group.members.values())

    def teardown(self) -> None:
        """If all clients fall silent, the group becomes empty and every call gets a reply."""
        if not hasattr(self, "harness"):
            return
        self.harness.commits_at_once = True
        self.harness.commit()
        for _ in range(1000):
            if not self.harness.timers:
                break
            self.next_timer()
        assert self.harness.group.state is ClassicState.EMPTY
        assert not self.harness.group.pending
        assert self.harness.waiting == 0
        assert all(not call.waits for call in self._all_calls())
        self.the_state_is_what_the_log_gives()

    # -- within ----------------------------------------------------------------------------

    def _hears_of_rebalance(self, client: Client) -> bool:
        call = self.harness.heartbeat(client.heartbeat_request())
        return call.error is ErrorCode.REBALANCE_IN_PROGRESS

    def _sync_as_leader(self, client: Watched) -> None:
        assert client.joined is not None
        group, generation = self.harness.group, client.generation
        was_completing = group.state is ClassicState.COMPLETING_REBALANCE
        self.payloads += 1
        given = {
            member.member: f"{member.member} {self.payloads}".encode()
            for member in client.joined.members
        }
        by_name = {
            member.instance or member.member: given[member.member]
            for member in client.joined.members
        }
        counts = was_completing and group.leader == client.id and generation == group.generation
        if counts and client.id in group.members:
            self.ledger.on_assigned(generation, by_name)
        client.sync(given)

    def _restart(self, data: st.DataObject) -> None:
        self.harness.restart()
        self._begin_new_life()

    def _fail_writes(self, data: st.DataObject) -> None:
        self.harness.fail_writes()
        self._begin_new_life()

    def _delete(self, data: st.DataObject) -> None:
        self.harness.delete()
        if self.harness.group.state is ClassicState.DEAD:
            self._restart(data)

    def _all_are_silent(self, data: st.DataObject) -> None:
        self.harness.pass_time(data.draw(LONG_MS))

    def _begin_new_life(self) -> None:
        """Generations that were not stored may be reused; stored ones are unchanged."""
        stored = self.harness.group.stored
        self.ledger = Ledger()
        if stored is not None and stored.members:
            self.ledger.assigned[stored.generation] = {
                member.instance or member.member: member.assignment for member in stored.members
            }
        for client in self.everyone:
            client.seen = self.ledger

    def _all_calls(self) -> Iterator[Call]:
        for client in self.everyone:
            yield from client.calls

    def _key(self, kind: str, member: str = "") -> TimerKey:
        return TimerKey(self.harness.group.name, kind, member)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=scaled(test=100, verify=1000, release=20_000),
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
)
