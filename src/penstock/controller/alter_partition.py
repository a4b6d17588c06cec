"""AlterPartition at the controller (KIP-497): which ISR proposals are stored, which are rejected.

Pure. Only the leader of the current leader epoch changes its partition's ISR, and only from the
current partition epoch. A proposal that is stored already is answered as done, because its first
answer may have been lost.
"""

from collections.abc import Sequence

from penstock.controller.controller_requests import update_metadata_requests
from penstock.controller.leader_election import with_new_partition_epoch
from penstock.controller.partition_changes import by_topic, state_writes, with_changes
from penstock.controller.reassignment import finish_reassignments
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
    AlterPartitionState,
    IsrMember,
)
from penstock.model.cluster import BrokerEpoch, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

NO_BROKER_EPOCH = BrokerEpoch(-1)  # the leader does not know it

_Verdict = tuple[ErrorCode, PartitionState | None]


def alter_partition(
    state: ClusterState,
    *,
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    proposals: Sequence[AlterPartitionProposal],
) -> tuple[ControllerDecision, list[AlterPartitionResult]]:
    """One result per proposal. Refusal if the broker is not registered with that epoch."""
    check_broker_epoch(state, broker, broker_epoch)
    names = {topic.topic_id: topic.name for topic in state.topics.values()}
    changed: dict[TopicPartition, PartitionState] = {}
    results: list[AlterPartitionResult] = []
    for proposal in proposals:
        tp = TopicPartition(names.get(proposal.topic_id, ""), proposal.partition)
        current = changed.get(tp) or _find_partition(state, tp)
        code, stored = _decide(state, current, broker, proposal)
        if code is ErrorCode.NONE and stored is not None and stored != current:
            changed[tp] = stored
        results.append(_result(code, stored))
    return _decision(state, changed), results


def check_broker_epoch(state: ClusterState, broker: BrokerId, broker_epoch: BrokerEpoch) -> None:
    node = state.brokers.get(broker)
    if node is None or node.epoch != broker_epoch:
        registered = "not registered" if node is None else f"registered with {node.epoch}"
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker} sends broker epoch {broker_epoch}, but is {registered}; "
            f"it must register, then try again",
        )


def _find_partition(state: ClusterState, tp: TopicPartition) -> PartitionState | None:
    topic = state.find_topic(tp.topic)
    if topic is None or not 0 <= tp.partition < len(topic.partitions):
        return None
    return topic.partitions[tp.partition]


def _decide(
    state: ClusterState,
    current: PartitionState | None,
    broker: BrokerId,
    proposal: AlterPartitionProposal,
) -> _Verdict:
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if proposal.leader_epoch != current.leader_epoch:
        is_old = proposal.leader_epoch < current.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NOT_CONTROLLER, current
    proposed = tuple(member.broker_id for member in proposal.in_sync)
    if current.leader == broker and proposal.partition_epoch != current.partition_epoch:
        is_stored = set(proposed) == set(current.in_sync)
        return ErrorCode.NONE if is_stored else ErrorCode.INVALID_UPDATE_VERSION, current
    if not _is_valid(current, broker, proposed):
        return ErrorCode.INVALID_REQUEST, current
    if any(not _is_eligible(state, current, member) for member in proposal.in_sync):
        return ErrorCode.INELIGIBLE_REPLICA, current
    return ErrorCode.NONE, with_new_partition_epoch(
        current._replace(in_sync=proposed), state.controller_epoch
    )


def _is_valid(current: PartitionState, broker: BrokerId, proposed: tuple[BrokerId, ...]) -> bool:
    return (
        current.leader == broker
        and broker in proposed
        and len(set(proposed)) == len(proposed)
        and set(proposed) <= set(current.replicas)
    )


def _is_eligible(state: ClusterState, current: PartitionState, member: IsrMember) -> bool:
    """A new member must be registered with the epoch that the leader saw (KIP-903), and not be in
    controlled shutdown."""
    node = state.brokers.get(member.broker_id)
    if node is None or member.broker_epoch not in (NO_BROKER_EPOCH, node.epoch):
        return False
    return member.broker_id in current.in_sync or member.broker_id not in state.shutting_down


def _result(code: ErrorCode, stored: PartitionState | None) -> AlterPartitionResult:
    if stored is None:
        return AlterPartitionResult(code)
    state = AlterPartitionState(
        stored.leader, stored.leader_epoch, stored.in_sync, stored.partition_epoch
    )
    return AlterPartitionResult(code, state)


def _decision(
    state: ClusterState, changed: dict[TopicPartition, PartitionState]
) -> ControllerDecision:
    """No LeaderAndIsr: the leader has its answer and followers do not care. UpdateMetadata does,
    because clients see the ISR."""
    if not changed:
        return ControllerDecision(state=state)
    changes = by_topic(changed)
    after = with_changes(state, changes)
    stored = ControllerDecision(
        state=after,
        writes=tuple(state_writes(changes)),
        requests=update_metadata_requests(after, topics=changes),
    )
    return stored.then(finish_reassignments(after, topics=changes))
