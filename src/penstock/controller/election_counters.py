"""Counts the leader elections of a broker while it is the active controller."""

from collections.abc import Mapping

from penstock.model.cluster import NO_BROKER, PartitionState, TopicState


class ElectionCounters:
    """Kept over all the times that this broker is elected. Owned by the controller's task."""

    def __init__(self) -> None:
        self.elections = 0
        self.unclean = 0  # the new leader was not in the ISR: records may be lost

    def count(self, before: Mapping[str, TopicState], after: Mapping[str, TopicState]) -> None:
        """Compare the states before and after a decision. Topics that it leaves alone are the same
        objects."""
        if before is after:
            return
        for name, topic in after.items():
            earlier = before.get(name)
            if earlier is None or earlier is topic:
                continue
            for old, new in zip(earlier.partitions, topic.partitions, strict=False):
                self._count_partition(old, new)

    def _count_partition(self, old: PartitionState, new: PartitionState) -> None:
        if new.leader == NO_BROKER or new.leader == old.leader:
            return
        self.elections += 1
        self.unclean += bool(old.in_sync) and new.leader not in old.in_sync
