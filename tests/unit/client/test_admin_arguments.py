"""Arguments of the admin client: what users may write, and what is refused before anything is
sent."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from penstock.client.admin_arguments import (
    read_brokers,
    read_names,
    read_new_topics,
    read_offset_at,
    read_partition,
    read_totals,
    split_partitions,
)
from penstock.client.admin_values import ConfigEntry, DescribedConfigSource, NewTopic
from penstock.client.data_calls import EARLIEST, LATEST
from penstock.config.setting import NOT_OURS
from penstock.model.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_one_name_and_several_are_the_same() -> None:
    assert read_names("topic", "a") == ["a"]
    assert read_names("topic", ["a", "b", "a"]) == ["a", "b"]


def test_a_plain_name_is_a_topic_with_the_clusters_defaults() -> None:
    assert read_new_topics(["a", NewTopic("b", 3)]) == [NewTopic("a"), NewTopic("b", 3)]


@pytest.mark.parametrize("given", [T0, ("t", 0), [T0], [("t", 0), ("t", 0)]])
def test_a_partition_may_be_a_plain_pair(given: tuple[str, int]) -> None:
    assert split_partitions(given) == ([], [T0])


def test_topics_and_partitions_may_be_mixed() -> None:
    assert split_partitions("t") == (["t"], [])
    assert split_partitions(["u", T0, T1]) == (["u"], [T0, T1])


def test_a_position_is_an_edge_a_time_or_milliseconds() -> None:
    assert (read_offset_at("earliest"), read_offset_at("latest")) == (EARLIEST, LATEST)
    assert read_offset_at(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)) == 2_000
    assert read_offset_at(datetime(1970, 1, 1, 0, 0, 2)) == 2_000
    assert read_offset_at(1_500) == 1_500


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: read_names("topic", []), "no topic is named"),
        (lambda: read_names("topic", ""), "the name of a topic is empty"),
        (lambda: read_new_topics(["a", "a"]), "named twice"),
        (lambda: read_new_topics(NewTopic("a", 0)), "partitions of topic 'a' is 0"),
        (lambda: read_new_topics(NewTopic("a", 1, -1)), "replication_factor of topic 'a'"),
        (lambda: read_new_topics(NewTopic("a", 1, assignment={0: [1]})), "leave those out"),
        (lambda: read_new_topics(NewTopic("a", assignment={1: [1]})), "number its partitions"),
        (lambda: read_new_topics(NewTopic("a", assignment={0: [1, 1]})), "each broker once"),
        (lambda: read_brokers("t-0", [-1]), "-1 is not the id of a broker"),
        (lambda: read_totals({"a": 0}), "write a number from 1 on"),
        (lambda: split_partitions([]), "no partition is named"),
        (lambda: read_offset_at("first"), "'first' is no position"),  # type: ignore[arg-type]
        (lambda: read_offset_at(-1), "-1 is no position"),
    ],
)
def test_a_wrong_value_says_what_to_write(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


def test_a_wrong_type_says_what_to_write() -> None:
    with pytest.raises(TypeError, match="b'a' is not the name of a topic: write it as str"):
        read_names("topic", [b"a"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"write TopicPartition\('orders', 0\)"):
        read_partition(("t", "0"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("documentation", "reason"),
    [
        ("Age of segments.", None),
        ("Age (in ms) of segments.", None),
        ("Threads. (accepted, not yet in effect)", "not yet in effect"),
        (NOT_OURS, "it is not a setting of this broker"),
        (None, None),
    ],
)
def test_an_entry_says_why_its_setting_changes_nothing(
    documentation: str | None, reason: str | None
) -> None:
    entry = ConfigEntry(
        name="n",
        value="1",
        source=DescribedConfigSource.TOPIC,
        is_read_only=False,
        is_sensitive=False,
        documentation=documentation,
    )
    assert entry.without_effect == reason
