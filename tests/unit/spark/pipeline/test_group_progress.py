"""A group's offsets are those of its slowest query."""

from penstock.model.ids import TopicPartition
from penstock.spark.pipeline.group_progress import GroupProgress
from penstock.spark.pipeline.reading import read_pipeline

PIPELINE = read_pipeline(
    "p.yaml",
    """
sources:
  clicks: {topic: clicks, group: web}
  all: {topic_pattern: '^ta', group: all}
  quiet: {topic: quiet}
sinks:
  a: {from: clicks, format: noop}
  b: {from: clicks, format: noop}
""",
    lambda name: name,
)
CLICKS, TAPS, QUIET = (TopicPartition(topic, 0) for topic in ("clicks", "taps", "quiet"))


def test_no_offsets_before_every_query_has_completed_a_batch() -> None:
    progress = GroupProgress(PIPELINE, ["a", "b"])
    progress.note("a", {CLICKS: 10})
    assert progress.offsets() == {}
    assert progress.offsets(is_final=True) == {"web": {CLICKS: 10}}
    progress.note("b", {CLICKS: 7})
    assert progress.offsets() == {"web": {CLICKS: 7}}
    progress.note("b", {CLICKS: 12})
    assert progress.offsets() == {"web": {CLICKS: 10}}


def test_group_gets_only_the_topics_of_its_sources() -> None:
    progress = GroupProgress(PIPELINE, ["a"])
    progress.note("a", {CLICKS: 1, TAPS: 2, QUIET: 3})
    assert progress.offsets() == {"web": {CLICKS: 1}, "all": {TAPS: 2}}
