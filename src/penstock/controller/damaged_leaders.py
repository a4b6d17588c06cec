"""Leaders that found their own log damaged: another member of the ISR leads instead.

Pure. Never elects outside the ISR, whatever the topic allows: the damaged leader still has every
record but the damaged ones. Without another live member it stays.
"""

from collections.abc import Iterable

from penstock.controller.alter_partition import check_broker_epoch
from penstock.controller.leader_election import find_successor, with_new_leader_epoch
from penstock.controller.partition_changes import by_topic, change_partitions
from penstock.controller.reassignment import finish_reassignments
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.cluster import BrokerEpoch, BrokerId, PartitionState
from penstock.model.ids import TopicPartition


def replace_damaged_leaders(
    state: ClusterState,
    broker: BrokerId,
    epoch: BrokerEpoch,
    partitions: Iterable[TopicPartition],
) -> ControllerDecision:
    """Refusal if the broker epoch is stale. Partitions that it does not lead are ignored."""
    check_broker_epoch(state, broker, epoch)
    replaced = {tp: _replace(state, broker, tp) for tp in partitions}
    changes = by_topic({tp: after for tp, after in replaced.items() if after is not None})
    decision = change_partitions(state, changes)
    return decision.then(finish_reassignments(decision.state, topics=changes))


def _replace(state: ClusterState, broker: BrokerId, tp: TopicPartition) -> PartitionState | None:
    topic = state.find_topic(tp.topic)
    if topic is None or not 0 <= tp.partition < len(topic.partitions):
        return None
    partition = topic.partitions[tp.partition]
    if partition.leader != broker:
        return None
    online = state.online_brokers(tp) - {broker}
    in_sync = tuple(replica for replica in partition.in_sync if replica in online)
    successor = find_successor(partition.replicas, in_sync, state.shutting_down)
    if successor is None:
        return None
    return with_new_leader_epoch(
        partition, leader=successor, in_sync=in_sync, controller_epoch=state.controller_epoch
    )
