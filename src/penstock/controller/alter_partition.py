"""Who is in sync, as leaders find it: what is refused, what is stored (AlterPartition, KIP-497).

Pure. Only the leader of the present epoch changes its partition's in-sync set, and only from the
state that it knows; a change that is stored already is answered as done, since its first answer
may have been lost.
"""

from collections.abc import Sequence

from penstock.controller.controller_requests import tell
from penstock.controller.interface import InSyncChange, InSyncMember, InSyncOutcome
from penstock.controller.leader_election import touched
from penstock.controller.partition_changes import by_topic, state_writes, with_changes
from penstock.controller.reassignment import finish_reassignments
from penstock.controller.state import ClusterState, Decision
from penstock.model.cluster import BrokerEpoch, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

NO_BROKER_EPOCH = BrokerEpoch(-1)  # the leader does not know it


def change_in_sync(
    state: ClusterState,
    *,
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    changes: Sequence[InSyncChange],
) -> tuple[Decision, list[InSyncOutcome]]:
    """An answer at each change's place. Refusal where the asker is not the broker of that id."""
    check_asker(state, broker, broker_epoch)
    names = {topic.topic_id: topic.name for topic in state.topics.values()}
    changed: dict[TopicPartition, PartitionState] = {}
    outcomes: list[InSyncOutcome] = []
    for change in changes:
        partition = TopicPartition(names.get(change.topic_id, ""), change.partition)
        current = changed.get(partition) or _find(state, partition)
        outcome = _answer(state, current, broker, change)
        if outcome.code is ErrorCode.NONE and outcome.state not in (None, current):
            assert outcome.state is not None
            changed[partition] = outcome.state
        outcomes.append(outcome)
    return _decision(state, changed), outcomes


def check_asker(state: ClusterState, broker: BrokerId, broker_epoch: BrokerEpoch) -> None:
    known = state.brokers.get(broker)
    if known is None or known.epoch != broker_epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker} asks with epoch {broker_epoch}, where it is registered "
            f"{'no more' if known is None else f'with {known.epoch}'}; register, then ask again",
        )


def _find(state: ClusterState, partition: TopicPartition) -> PartitionState | None:
    topic = state.find_topic(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return None
    return topic.partitions[partition.partition]


def _answer(
    state: ClusterState,
    current: PartitionState | None,
    broker: BrokerId,
    change: InSyncChange,
) -> InSyncOutcome:
    if current is None:
        return InSyncOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if change.leader_epoch != current.leader_epoch:
        is_old = change.leader_epoch < current.leader_epoch
        return InSyncOutcome(
            ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NOT_CONTROLLER, current
        )
    wanted = tuple(each.broker for each in change.in_sync)
    if current.leader == broker and change.partition_epoch != current.partition_epoch:
        is_done = set(wanted) == set(current.in_sync)
        code = ErrorCode.NONE if is_done else ErrorCode.INVALID_UPDATE_VERSION
        return InSyncOutcome(code, current)
    if not _is_possible(current, broker, wanted):
        return InSyncOutcome(ErrorCode.INVALID_REQUEST, current)
    if any(not _may_be_in_sync(state, current, each) for each in change.in_sync):
        return InSyncOutcome(ErrorCode.INELIGIBLE_REPLICA, current)
    after = touched(current._replace(in_sync=wanted), state.controller_epoch)
    return InSyncOutcome(ErrorCode.NONE, after)


def _is_possible(current: PartitionState, broker: BrokerId, wanted: tuple[BrokerId, ...]) -> bool:
    return (
        current.leader == broker
        and broker in wanted
        and len(set(wanted)) == len(wanted)
        and set(wanted) <= set(current.replicas)
    )


def _may_be_in_sync(state: ClusterState, current: PartitionState, member: InSyncMember) -> bool:
    """One that comes must be there to stay, in the life that the leader has seen (KIP-903)."""
    node = state.brokers.get(member.broker)
    if node is None or member.epoch not in (NO_BROKER_EPOCH, node.epoch):
        return False
    return member.broker in current.in_sync or member.broker not in state.leaving


def _decision(state: ClusterState, changed: dict[TopicPartition, PartitionState]) -> Decision:
    """The leader has its answer, and followers need no order: all are told, as clients are."""
    if not changed:
        return Decision(state=state)
    changes = by_topic(changed)
    after = with_changes(state, changes)
    stored = Decision(
        state=after, writes=tuple(state_writes(changes)), orders=tell(after, topics=changes)
    )
    return stored.then(finish_reassignments(after, topics=changes))
