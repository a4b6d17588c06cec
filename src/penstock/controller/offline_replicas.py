"""Replicas whose log has failed on a live broker: elect other leaders, shrink the ISRs.

Pure. Failed replicas are not in the metadata store: a new controller sends every broker the full
state, and a broker that cannot serve a replica reports it again.
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock.controller.alter_partition import check_broker_epoch
from penstock.controller.broker_changes import AllowsUnclean, elect_partition
from penstock.controller.controller_requests import update_metadata_requests
from penstock.controller.partition_changes import by_topic, change_partitions
from penstock.controller.reassignment import finish_reassignments
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.ids import TopicPartition


def fail_replicas(
    state: ClusterState,
    broker: BrokerId,
    epoch: BrokerEpoch,
    partitions: Iterable[TopicPartition],
    allows_unclean: AllowsUnclean,
) -> ControllerDecision:
    """Refusal if the broker epoch is stale. Partitions that the broker does not hold are ignored:
    they have been reassigned or deleted since."""
    check_broker_epoch(state, broker, epoch)
    held = [tp for tp in partitions if _holds(state, broker, tp)]
    failed = {tp: state.failed.get(tp, frozenset()) | {broker} for tp in held}
    marked = replace(state, failed={**state.failed, **failed})
    live = frozenset(state.brokers)
    elected = {tp: elect_partition(marked, tp, live, allows_unclean) for tp in held}
    changes = by_topic({tp: after for tp, after in elected.items() if after is not None})
    decision = change_partitions(marked, changes)
    decision = decision.then(finish_reassignments(decision.state, topics=changes))
    return decision.then(_publish_failed(decision.state, before=state))


def _publish_failed(after: ClusterState, *, before: ClusterState) -> ControllerDecision:
    """If they changed, send all brokers all failed replicas: clients see them as offline."""
    failed_changed = after.failed != before.failed
    return ControllerDecision(
        state=after,
        requests=update_metadata_requests(after, with_failed=True) if failed_changed else (),
    )


def _holds(state: ClusterState, broker: BrokerId, tp: TopicPartition) -> bool:
    topic = state.find_topic(tp.topic)
    if topic is None or not 0 <= tp.partition < len(topic.partitions):
        return False
    return broker in topic.partitions[tp.partition].replicas
