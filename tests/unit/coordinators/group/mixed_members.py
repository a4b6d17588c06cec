"""Classic consumers in a group of either protocol.

They join, sync and send heartbeats as clients do. Eager ones revoke everything before they rejoin,
cooperative ones keep and report their partitions; the leader of a classic group assigns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.coordinators.group.consumer_harness import GROUP, ConsumerGroupHarness

from penstock.coordinators.group.consumer.embedded_protocol import (
    read_assignment,
    read_subscription,
    with_topic_ids,
    write_assignment,
)
from penstock.coordinators.group.consumer.partitions import (
    Partitions,
    common,
    to_topics,
    together,
    without,
)
from penstock.coordinators.group.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinGroupMember,
    JoinGroupReply,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
    SyncGroupReply,
)
from penstock.model.errors import ErrorCode
from penstock.protocol.coordinator_values import ValueWriter

SESSION_MS = 10_000
REBALANCE_MS = 60_000
COOPERATIVE, EAGER = "cooperative-sticky", "range"


@dataclass(slots=True)
class ClassicConsumer:
    harness: ConsumerGroupHarness
    name: str
    topics: tuple[str, ...] = ("orders",)
    assignor: str = COOPERATIVE
    instance: str | None = None
    protocol_type: str = "consumer"
    id: str = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    owned: Partitions = field(default_factory=dict)
    protocol: str | None = None
    error: ErrorCode | None = None  # of the last response; None while one is pending
    wants_to_join: bool = True
    waits: bool = False
    forgets_to_sync: bool = False
    is_dead: bool = False  # its process crashed: responses are lost

    # -- requests --------------------------------------------------------------------------

    def join(self) -> None:
        if self.assignor == EAGER:
            self.owned = {}
        self.error, self.waits = None, True
        request = JoinGroup(
            group=GROUP,
            member=self.id,
            instance=self.instance,
            client_id=self.name,
            client_host="/10.0.0.2",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=self.protocol_type,
            protocols=(MemberProtocol(self.assignor, self.metadata()),),
            requires_known_member=True,
        )
        harness = self.harness
        harness.ask(
            lambda waiter: harness.state.join(request, waiter, harness.now_ms), self.on_joined
        )

    def sync(self, assignments: dict[str, bytes]) -> None:
        harness, group = self.harness, self.harness.group
        if group is None:
            self.on_synced(SyncGroupReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self.error, self.waits = None, True
        request = SyncGroup(
            group=GROUP,
            member=self.id,
            instance=self.instance,
            generation=self.generation,
            protocol_type="consumer",
            protocol=self.protocol,
            assignments=assignments,
        )
        harness.ask(
            lambda waiter: group.sync(request, waiter, harness.environment),
            self.on_synced,
        )

    def heartbeat(self) -> ErrorCode:
        harness, group = self.harness, self.harness.group
        error: object = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            request = Heartbeat(
                group=GROUP, member=self.id, instance=self.instance, generation=self.generation
            )
            error = harness.carry_out(group.heartbeat(request, harness.environment))
        assert isinstance(error, ErrorCode)
        self._apply_error(error)
        return error

    def leave(self) -> ErrorCode:
        harness, group = self.harness, self.harness.group
        assert group is not None
        leaver = LeavingMember(self.id, self.instance)
        reply: Any = harness.carry_out(group.leave([leaver], harness.environment))
        self._forget()
        error: ErrorCode = reply[1][0].error
        return error

    def go_on(self) -> None:
        """Send the next request of the protocol."""
        if self.waits:
            return
        if not self.wants_to_join:
            self.heartbeat()
        if self.wants_to_join:
            self.join()

    # -- responses -------------------------------------------------------------------------

    def on_joined(self, reply: JoinGroupReply) -> None:
        if self.is_dead:
            return
        self.error, self.waits = reply.error, False
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = reply.member
            self.join()
        elif reply.error is not ErrorCode.NONE:
            self._apply_error(reply.error)
        else:
            self.id, self.generation = reply.member, reply.generation
            self.protocol, self.wants_to_join = reply.protocol, False
            is_leader = reply.leader == self.id
            if not self.forgets_to_sync:
                self.sync(self._assign(reply.members) if is_leader else {})

    def on_synced(self, reply: SyncGroupReply) -> None:
        if self.is_dead:
            return
        self.error, self.waits = reply.error, False
        if reply.error is not ErrorCode.NONE:
            self._apply_error(reply.error)
            return
        assigned = read_assignment(reply.assignment, self.harness.topics)
        self.wants_to_join = bool(without(self.owned, assigned))  # others wait for those
        self.owned = assigned

    def _apply_error(self, error: ErrorCode) -> None:
        self.wants_to_join = self.wants_to_join or error is not ErrorCode.NONE
        if error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            member = self.id if error is ErrorCode.ILLEGAL_GENERATION else UNKNOWN_MEMBER
            self._forget()
            self.id = member

    def _forget(self) -> None:
        self.id, self.generation, self.owned = UNKNOWN_MEMBER, NO_GENERATION, {}
        self.wants_to_join = True

    # -- partitions ------------------------------------------------------------------------

    def metadata(self) -> bytes:
        """Encode version 1, which has the owned partitions."""
        writer = ValueWriter(flexible=False)
        writer.int16(1)
        writer.array(self.topics, ValueWriter.string)
        writer.int32(-1)
        named = [
            (name, numbers)
            for topic, numbers in to_topics(self.owned)
            if (name := self.harness.topics.find_name(topic)) is not None
        ]
        writer.array(named, _write_named)
        return writer.done()

    def _assign(self, members: Iterable[JoinGroupMember]) -> dict[str, bytes]:
        """Assign round robin, except partitions that another member still owns."""
        topics = self.harness.topics
        subscriptions = {member.member: read_subscription(member.metadata) for member in members}
        had = {
            member: with_topic_ids(subscription.owned, topics)
            for member, subscription in subscriptions.items()
        }
        shares: dict[str, Partitions] = {member: {} for member in subscriptions}
        for name in sorted(
            {topic for subscription in subscriptions.values() for topic in subscription.topics}
        ):
            view = topics.find(name)
            takers = sorted(
                member
                for member, subscription in subscriptions.items()
                if name in subscription.topics
            )
            for partition in range(0 if view is None else view.partitions):
                assert view is not None
                one = {view.topic_id: frozenset((partition,))}
                taker = takers[partition % len(takers)]
                holder = next((owner for owner, own in had.items() if common(own, one)), taker)
                if holder == taker:
                    shares[taker] = together(shares[taker], one)
        return {member: write_assignment(own, 1, topics) for member, own in shares.items()}

    @property
    def work(self) -> set[str]:
        return self.harness.named(self.owned)


def _write_named(writer: ValueWriter, named: tuple[str, tuple[int, ...]]) -> None:
    writer.string(named[0])
    writer.array(named[1], ValueWriter.int32)
