"""Replicas whose log has failed while their broker lives: others lead, in sync without them.

Pure. Who has failed is not in the tree: a controller that takes over orders everything anew, and
the broker of a replica that cannot obey says so again.
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock.controller.alter_partition import check_broker_epoch
from penstock.controller.broker_changes import AllowsUnclean, elect_one
from penstock.controller.controller_requests import tell
from penstock.controller.partition_changes import by_topic, changed_partitions
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
    """Refusal where the asker is not the broker of that id. What it does not hold is passed over:
    it has been moved or deleted since."""
    check_broker_epoch(state, broker, epoch)
    names = [name for name in partitions if _holds(state, broker, name)]
    failed = {name: state.failed.get(name, frozenset()) | {broker} for name in names}
    marked = replace(state, failed={**state.failed, **failed})
    live = frozenset(state.brokers)
    elected = {name: elect_one(marked, name, live, allows_unclean) for name in names}
    changes = by_topic({name: after for name, after in elected.items() if after is not None})
    decision = changed_partitions(marked, changes)
    decision = decision.then(finish_reassignments(decision.state, topics=changes))
    return decision.then(_tell_failed(decision.state, before=state))


def _tell_failed(after: ClusterState, *, before: ClusterState) -> ControllerDecision:
    """All that is known, to everybody, if it has changed: clients see such replicas as offline."""
    is_news = after.failed != before.failed
    return ControllerDecision(
        state=after, requests=tell(after, with_failed=True) if is_news else ()
    )


def _holds(state: ClusterState, broker: BrokerId, name: TopicPartition) -> bool:
    topic = state.find_topic(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return False
    return broker in topic.partitions[name.partition].replicas
