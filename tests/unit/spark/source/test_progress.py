"""The lag of a query, and the group its progress is published to."""

from penstock.spark.source.group_offsets import (
    PublishedGroup,
    add_published_group,
    read_published_group,
)
from penstock.spark.source.progress import source_behind

LATEST = '{"t": {"0": 10, "1": 5}, "@publish": {"bootstrap": "a:1", "group": "g"}}'


def test_lag_is_counted_from_the_last_batch_to_the_end_of_the_log() -> None:
    end = '{"t": {"0": 4, "1": 5}, "@start": {"t": {"0": 0, "1": 0}}}'
    assert source_behind({"endOffset": end, "latestOffset": LATEST}) == (0, 6, 3.0, 6)


def test_progress_may_be_parsed_already() -> None:
    parsed = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 2}}}
    assert source_behind(parsed) == (1, 1, 1.0, 1)


def test_lag_is_unknown_before_the_first_batch() -> None:
    assert source_behind({"endOffset": None, "latestOffset": None}) is None
    assert source_behind({}) is None


def test_progress_names_the_group_to_publish_to() -> None:
    where = PublishedGroup("a:1", "g")
    assert read_published_group(add_published_group({"t": {"0": 1}}, where)) == where
    assert read_published_group({"t": {"0": 1}}) is None
    assert read_published_group(None) is None
