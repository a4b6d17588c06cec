"""How far a pipeline has come with what its groups read: as far as its slowest query. Pure.

Each sink is a query that reads the topics by itself. If every one published its own place, the
group's offsets would jump to and fro, and promise more than was written.
"""

from collections.abc import Iterable, Mapping

from penstock.model.ids import TopicPartition
from penstock.spark.pipeline.spec import Pipeline, TopicSource
from penstock.spark.source.offset_json import Offsets
from penstock.spark.source.topic_pattern import compile_pattern


class GroupProgress:
    """Owned by one run."""

    def __init__(self, pipeline: Pipeline, queries: Iterable[str]) -> None:
        self._sources = [each for each in pipeline.topic_sources() if each.group is not None]
        self._ends: dict[str, Offsets] = {}  # by query: everything before is written
        self._silent = set(queries)  # have not said yet what they read

    def note(self, query: str, ends: Offsets) -> None:
        self._silent.discard(query)
        self._ends[query] = ends

    def places(self, *, is_final: bool = False) -> dict[str, Offsets]:
        """By group. Nothing before every query has told of a batch, unless none will any more."""
        if self._silent and not is_final:
            return {}
        slowest = _slowest(self._ends.values())
        found: dict[str, dict[TopicPartition, int]] = {}
        for source in self._sources:
            assert source.group is not None
            mine = {each: at for each, at in slowest.items() if _reads(source, each.topic)}
            if mine:
                found.setdefault(source.group, {}).update(mine)
        return dict(found)


def _slowest(ends: Iterable[Offsets]) -> Mapping[TopicPartition, int]:
    slowest: dict[TopicPartition, int] = {}
    for offsets in ends:
        for each, offset in offsets.items():
            slowest[each] = min(offset, slowest.get(each, offset))
    return slowest


def _reads(source: TopicSource, topic: str) -> bool:
    kind, what = source.subscription
    if kind == "subscribePattern":
        return compile_pattern(kind, what).search(topic) is not None
    return topic in source.topics
