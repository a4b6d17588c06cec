"""The offsets that a pipeline publishes for its consumer groups: those of its slowest query. Pure.

Each sink is a query that reads the topics on its own. If every query published its own offsets, the
group's offsets would jump back and forth, and be ahead of what was written.
"""

from collections.abc import Iterable, Mapping

from penstock.model.ids import TopicPartition
from penstock.spark.pipeline.spec import Pipeline, TopicSource
from penstock.spark.source.offset_json import Offsets
from penstock.spark.source.topic_pattern import compile_pattern


class GroupProgress:
    """Owned by one run."""

    def __init__(self, pipeline: Pipeline, queries: Iterable[str]) -> None:
        self._sources = [source for source in pipeline.topic_sources() if source.group is not None]
        self._ends: dict[str, Offsets] = {}  # by query: everything before them is written
        self._without_batch = set(queries)  # have not completed a batch yet

    def note(self, query: str, ends: Offsets) -> None:
        self._without_batch.discard(query)
        self._ends[query] = ends

    def offsets(self, *, is_final: bool = False) -> dict[str, Offsets]:
        """Offsets by group; empty until every query has completed a batch or the run is over."""
        if self._without_batch and not is_final:
            return {}
        slowest = _slowest(self._ends.values())
        by_group: dict[str, dict[TopicPartition, int]] = {}
        for source in self._sources:
            assert source.group is not None
            read = {tp: offset for tp, offset in slowest.items() if _reads(source, tp.topic)}
            if read:
                by_group.setdefault(source.group, {}).update(read)
        return dict(by_group)


def _slowest(ends: Iterable[Offsets]) -> Mapping[TopicPartition, int]:
    slowest: dict[TopicPartition, int] = {}
    for offsets in ends:
        for tp, offset in offsets.items():
            slowest[tp] = min(offset, slowest.get(tp, offset))
    return slowest


def _reads(source: TopicSource, topic: str) -> bool:
    kind, topics = source.subscription
    if kind == "subscribePattern":
        return compile_pattern(kind, topics).search(topic) is not None
    return topic in source.topics
