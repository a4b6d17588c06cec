"""ISR expansion and shrinking through AlterPartition, and the rules while one is in flight."""

from itertools import product

import pytest
from tests.unit.replication.harness import ME, OTHER, P0, THIRD, ReplicationHarness

from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
    AlterPartitionState,
)
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.replication.alter_partition import Answered
from penstock.replication.isr_manager import REFUSED_MS, RETRY_MS

ALL = (ME, OTHER, THIRD)
LAG_MS = 1000


class FakeController:
    """Receives AlterPartition proposals; a test responds to them."""

    def __init__(self) -> None:
        self.proposals: list[tuple[AlterPartitionProposal, Answered]] = []

    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        self.proposals.append((proposal, done))

    @property
    def wanted(self) -> list[tuple[int, ...]]:
        return [
            tuple(member.broker_id for member in proposal.in_sync) for proposal, _ in self.proposals
        ]

    def answer(self, code: ErrorCode, state: AlterPartitionState | None = None) -> None:
        self.proposals[-1][1](AlterPartitionResult(code, state))

    def store(self) -> None:
        """Accept the proposal, with the next partition epoch."""
        proposal, _ = self.proposals[-1]
        members = tuple(member.broker_id for member in proposal.in_sync)
        epoch = proposal.partition_epoch + 1
        self.answer(ErrorCode.NONE, AlterPartitionState(ME, proposal.leader_epoch, members, epoch))


class LeaderHarness(ReplicationHarness):
    def __init__(self, **broker: str) -> None:
        settings = {"replica_lag_time_max_ms": str(LAG_MS), **broker}
        super().__init__(broker={name.replace("_", "."): text for name, text in settings.items()})
        self.controller = FakeController()
        self.replicas.isr_manager.sender = self.controller
        self.register_brokers()

    def register_brokers(self, *ids: BrokerId, epoch: int = 5) -> None:
        nodes = [BrokerNode(id=id_, epoch=BrokerEpoch(epoch), endpoints=()) for id_ in ids or ALL]
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                brokers=tuple(nodes),
            )
        )

    def fetch(self, follower: BrokerId, end: int, *, broker_epoch: int = 5) -> None:
        self.replicas.update_follower_end_offset(
            self.replicas.get(P0), follower, Offset(end), BrokerEpoch(broker_epoch)
        )


@pytest.fixture
def harness() -> LeaderHarness:
    return LeaderHarness()


def test_a_caught_up_follower_is_proposed_and_counts_for_the_high_watermark_at_once(
    harness: LeaderHarness,
) -> None:
    harness.update_topic(min_insync_replicas="2")
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.append(P0, acks=1)
    harness.fetch(OTHER, 1)
    assert harness.controller.wanted == [(ME, OTHER)]
    assert harness.controller.proposals[0][0].in_sync[1].broker_epoch == 5
    harness.append(P0, acks=1)
    assert harness.partition().high_watermark == 1  # the controller may have stored the ISR already
    assert harness.partition().under_min_isr  # but its response has not arrived
    harness.controller.store()
    assert not harness.partition().under_min_isr
    assert harness.partition().state.in_sync == (ME, OTHER)
    assert harness.partition().state.partition_epoch == 1
    assert harness.partition().high_watermark == 1
    harness.fetch(OTHER, 2)
    assert harness.partition().high_watermark == 2


def test_stored_shrinks_and_expands_are_counted(harness: LeaderHarness) -> None:
    harness.leader_and_isr(P0, replicas=ALL, in_sync=ALL)
    harness.append(P0, timeout_ms=60_000)
    harness.fetch(OTHER, 1)
    harness.clock.advance_ms(LAG_MS + LAG_MS // 2 + 10)
    statistics = harness.replicas.statistics()
    assert (statistics.isr_shrinks, statistics.isr_expands) == (0, 0)  # proposed, not stored
    harness.controller.store()
    harness.fetch(THIRD, 1)
    harness.controller.store()
    statistics = harness.replicas.statistics()
    assert (statistics.isr_shrinks, statistics.isr_expands) == (1, 1)


def test_a_follower_below_the_epoch_start_is_not_proposed(harness: LeaderHarness) -> None:
    """KAFKA-7128: an earlier leader may have committed records up to the epoch start."""
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER))
    harness.append(P0, P0, P0, acks=1)
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER), epoch=1, partition_epoch=1)
    assert (harness.partition().high_watermark, harness.partition().epoch_start_offset) == (0, 3)
    harness.fetch(THIRD, 2)
    assert harness.controller.wanted == []
    harness.fetch(THIRD, 3)
    assert harness.controller.wanted == [(ME, OTHER, THIRD)]


def test_a_lagging_follower_holds_back_the_high_watermark_until_the_shrink_is_stored(
    harness: LeaderHarness,
) -> None:
    harness.leader_and_isr(P0, replicas=ALL, in_sync=ALL)
    sent = harness.append(P0, timeout_ms=60_000)
    harness.fetch(OTHER, 1)
    harness.clock.advance_ms(LAG_MS + LAG_MS // 2 + 10)
    assert harness.controller.wanted == [(ME, OTHER)]
    assert not sent.is_answered
    harness.controller.store()
    assert sent.codes == [ErrorCode.NONE]
    assert harness.partition().high_watermark == 1


def test_a_shrink_below_min_isr_counts_the_smaller_isr_at_once(
    harness: LeaderHarness,
) -> None:
    harness.update_topic(min_insync_replicas="2")
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER))
    harness.append(P0, acks=1)
    harness.clock.advance_ms(3 * LAG_MS)
    assert harness.controller.wanted == [(ME,)]
    assert harness.append(P0).codes == [ErrorCode.NOT_ENOUGH_REPLICAS]


@pytest.mark.parametrize("restart", ["gone", "another"])
def test_a_catching_up_follower_is_not_awaited_after_its_broker_failed(
    harness: LeaderHarness, restart: str
) -> None:
    """A broker in controlled shutdown likewise fetches until it stops."""
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER))
    harness.append(P0, acks=1)
    harness.fetch(OTHER, 1)
    harness.fetch(THIRD, 1)
    harness.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    harness.fetch(THIRD, 1)
    sent = harness.append(P0, timeout_ms=60_000)
    harness.fetch(OTHER, 2)
    assert not sent.is_answered
    if restart == "gone":
        harness.register_brokers(ME, OTHER)
    else:
        harness.register_brokers(epoch=6)
    assert sent.codes == [ErrorCode.NONE]
    assert harness.partition().high_watermark == 2


def test_idle_partitions_never_change_their_isr(harness: LeaderHarness) -> None:
    """KAFKA-7152."""
    names = [TopicPartition("orders", number) for number in range(100)]
    harness.leader_and_isr(*names, replicas=ALL, in_sync=ALL)
    for name, follower in product(names, (OTHER, THIRD)):
        harness.replicas.update_follower_end_offset(harness.replicas.get(name), follower, Offset(0))
    for _ in range(60):
        harness.clock.advance_ms(LAG_MS)
    assert harness.controller.wanted == []


def test_an_unknown_result_is_retried(harness: LeaderHarness) -> None:
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.fetch(OTHER, 0)
    for _ in range(3):
        harness.controller.answer(ErrorCode.REQUEST_TIMED_OUT)
        assert harness.partition().proposal is not None
        harness.clock.advance_ms(RETRY_MS + 2)
    assert harness.controller.wanted == [(ME, OTHER)] * 4
    assert len({id(proposal) for proposal, _ in harness.controller.proposals}) == 1


def test_a_leader_with_a_stale_partition_epoch_adopts_the_stored_state(
    harness: LeaderHarness,
) -> None:
    """KAFKA-2729: otherwise it could never change its ISR again."""
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.fetch(OTHER, 0)
    stored = AlterPartitionState(ME, LeaderEpoch(0), (ME, THIRD), 7)
    harness.controller.answer(ErrorCode.INVALID_UPDATE_VERSION, stored)
    state = harness.partition().state
    assert (state.in_sync, state.partition_epoch) == ((ME, THIRD), 7)
    harness.fetch(OTHER, 0)
    assert harness.controller.proposals[-1][0].partition_epoch == 7
    assert harness.controller.wanted[-1] == (ME, THIRD, OTHER)


def test_a_deposed_leader_waits_for_leader_and_isr(harness: LeaderHarness) -> None:
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER))
    harness.append(P0, acks=1)
    harness.clock.advance_ms(3 * LAG_MS)
    harness.controller.answer(
        ErrorCode.FENCED_LEADER_EPOCH, AlterPartitionState(OTHER, LeaderEpoch(1), (OTHER,), 1)
    )
    harness.clock.advance_ms(3 * LAG_MS)
    assert harness.controller.wanted == [(ME,)]
    assert harness.partition().high_watermark == 0


def test_a_refused_follower_is_proposed_again_after_a_pause(harness: LeaderHarness) -> None:
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.fetch(OTHER, 0)
    harness.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert harness.partition().proposal is None
    harness.fetch(OTHER, 0)
    assert len(harness.controller.proposals) == 1
    harness.clock.advance_ms(REFUSED_MS)
    harness.fetch(OTHER, 0)
    assert len(harness.controller.proposals) == 2


def test_leader_and_isr_ends_the_proposal_and_its_response_is_ignored(
    harness: LeaderHarness,
) -> None:
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.fetch(OTHER, 0)
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, THIRD), partition_epoch=1)
    assert harness.partition().proposal is None
    harness.controller.store()
    assert harness.partition().state.in_sync == (ME, THIRD)


@pytest.mark.parametrize("broker_epoch", [4, 6])
def test_a_follower_with_another_broker_epoch_is_not_proposed(
    harness: LeaderHarness, broker_epoch: int
) -> None:
    """KIP-903."""
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.fetch(OTHER, 0, broker_epoch=broker_epoch)
    assert harness.controller.wanted == []


def test_a_follower_that_is_not_registered_is_not_proposed(harness: LeaderHarness) -> None:
    harness.register_brokers(ME, THIRD)
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.fetch(OTHER, 0)
    assert harness.controller.wanted == []


def test_the_high_watermark_waits_for_a_catching_up_follower(harness: LeaderHarness) -> None:
    """Otherwise it would never catch up under a steady load."""
    harness.register_brokers(ME)  # no broker may join the ISR
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME,))
    harness.append(P0, acks=1)
    harness.fetch(OTHER, 1)
    harness.append(P0, acks=1)
    assert harness.partition().high_watermark == 1
    harness.clock.advance_ms(2 * LAG_MS)
    assert harness.partition().high_watermark == 2


def test_lag_in_messages_counts_if_configured() -> None:
    harness = LeaderHarness(replica_lag_max_messages="2")
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER))
    harness.fetch(OTHER, 0)
    harness.append(P0, P0, P0, acks=1)
    harness.clock.advance_ms(LAG_MS // 2 + 10)
    assert harness.controller.wanted == [(ME,)]


def test_a_single_node_sends_no_alter_partition(harness: LeaderHarness) -> None:
    harness.replicas.isr_manager.sender = None
    harness.leader_and_isr(P0, replicas=ALL, in_sync=(ME, OTHER))
    harness.append(P0, acks=1)
    harness.clock.advance_ms(10 * LAG_MS)
    assert harness.partition().proposal is None


def late_reassignment(harness: LeaderHarness) -> dict[TopicPartition, ErrorCode]:
    return harness.leader_and_isr(
        P0, replicas=(THIRD, ME, OTHER), in_sync=(ME,), adding=(THIRD,), partition_epoch=2
    )


def test_replicas_of_an_overtaken_leader_and_isr_request_are_taken(harness: LeaderHarness) -> None:
    """A reassignment begins, and its request arrives after the response to a proposal that the
    controller decided on later: without the new replica it would never finish."""
    harness.leader_and_isr(P0, replicas=(ME, OTHER), in_sync=(ME,), partition_epoch=1)
    harness.append(P0, acks=1)
    harness.fetch(OTHER, 1)
    proposal, _ = harness.controller.proposals[-1]
    members = (ME, OTHER)
    stored = AlterPartitionState(ME, proposal.leader_epoch, members, partition_epoch=3)
    harness.controller.answer(ErrorCode.NONE, stored)
    assert late_reassignment(harness) == {P0: ErrorCode.NONE}
    state = harness.partition().state
    assert (state.replicas, state.adding) == ((THIRD, *members), (THIRD,))
    assert (state.in_sync, state.partition_epoch) == (members, 3)
    harness.fetch(THIRD, 1)
    assert harness.controller.wanted[-1] == (ME, OTHER, THIRD)


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_proposal_stays_pending_when_replicas_are_taken(
    harness: LeaderHarness, epoch: int
) -> None:
    """The controller may have stored it: the high watermark must wait for its members."""
    harness.leader_and_isr(P0, replicas=(ME, OTHER), in_sync=(ME,), partition_epoch=1)
    stored = AlterPartitionState(ME, LeaderEpoch(0), (ME,), partition_epoch=epoch)
    assert harness.partition().try_adopt(stored)
    harness.append(P0, acks=1)
    harness.fetch(OTHER, 1)
    harness.append(P0, acks=1)
    late_reassignment(harness)
    assert harness.partition().high_watermark == 1
    older = harness.leader_and_isr(P0, replicas=(ME,), partition_epoch=1)
    assert older == {P0: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert harness.partition().state.replicas == (THIRD, ME, OTHER)
    late_reassignment(harness)  # again, as from another controller
    harness.controller.store()
    assert harness.partition().state.in_sync == (ME, OTHER)
