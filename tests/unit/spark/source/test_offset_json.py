"""Offsets as JSON, in options and in checkpoints."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.errors import BadOption
from penstock.spark.source.offset_json import (
    StreamOffset,
    format_partitions,
    parse_assign,
    parse_offsets,
    parse_times,
    read_offset,
    strip_offset,
    write_offset,
)

partitions = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name.strip(".")),
    st.integers(0, 2**31 - 1),
)
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=5)


topic_ids = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.uuids().map(str))


@given(st.builds(StreamOffset, offsets, offsets, st.booleans(), topic_ids))
def test_offset_survives_sparks_checkpoint(offset: StreamOffset) -> None:
    text = json.dumps(write_offset(offset))
    assert read_offset(json.loads(text)) == offset
    assert json.dumps(json.loads(text)) == text  # Spark compares the text


@given(offsets)
def test_equal_offsets_give_equal_json(by_partition: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(by_partition.items()))
    one, other = (write_offset(StreamOffset(offsets, {})) for offsets in (by_partition, backwards))
    assert json.dumps(one) == json.dumps(other)


def test_offset_of_sparks_kafka_connector_can_be_read() -> None:
    written = json.loads('{"orders":{"0":23,"1":42}}')
    expected = {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): 42}
    assert read_offset(written) == StreamOffset(expected, {}, is_initial=False)


def test_stripped_offset_equals_that_of_sparks_kafka_connector() -> None:
    tp = TopicPartition("b", 9)
    offset = StreamOffset({tp: 2}, {tp: 1}, is_initial=True, topic_ids={"b": "some id"})
    assert strip_offset(write_offset(offset)) == {"b": {"9": 2}}


def test_offset_without_starts_equals_that_of_sparks_kafka_connector() -> None:
    offset = StreamOffset({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2}, {})
    assert json.dumps(write_offset(offset)) == '{"b": {"9": 2, "10": 1}}'


def test_options_name_offsets_times_and_partitions() -> None:
    first, second = TopicPartition("a", 0), TopicPartition("b", 3)
    assert parse_offsets("o", '{"a": {"0": -2}, "b": {"3": 7}}') == {first: -2, second: 7}
    assert parse_times("o", '{"a": {"0": 1700000000000}}') == {first: 1_700_000_000_000}
    assert parse_assign("o", '{"b": [3], "a": [0, 0]}') == (first, second)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{", "not valid JSON"),
        ("[1]", "write {"),
        ("{}", "no partition"),
        ('{"a": {}}', "no partition"),
        ('{"a": [0]}', "each partition"),
        ('{"a": {"x": 1}}', "'x' is not a partition number"),
        ('{"a": {"-1": 1}}', "'-1' is not a partition number"),
        ('{"a": {"0": "1"}}', "a-0 has '1'"),
        ('{"a": {"0": true}}', "a-0 has True"),
        ('{"a": {"0": 1.5}}', "a-0 has 1.5"),
        ('{"a": {"0": -3}}', "a-0 has -3"),
        ('{"a/b": {"0": 1}}', "topic name 'a/b'"),
        ('{"a": {"2147483648": 1}}', "partition 2147483648"),
    ],
)
def test_invalid_offsets_are_rejected_with_option_and_format(text: str, hint: str) -> None:
    with pytest.raises(BadOption) as caught:
        parse_offsets("startingOffsets", text)
    assert "option startingOffsets=" in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("text", ['{"a": {"0": -1}}', "now", '{"a": 5}'])
def test_invalid_times_are_rejected(text: str) -> None:
    with pytest.raises(BadOption, match="milliseconds since 1970"):
        parse_times("startingOffsetsByTimestamp", text)


@pytest.mark.parametrize("text", ["orders", "{}", '{"a": []}', '{"a": ["0"]}', '{"a": {"0": 1}}'])
def test_invalid_assignments_are_rejected(text: str) -> None:
    with pytest.raises(BadOption, match="option assign="):
        parse_assign("assign", text)


def test_long_partition_lists_are_shortened() -> None:
    many = [TopicPartition("t", number) for number in range(12)]
    assert format_partitions(many).endswith("t-9 and 2 more")
    assert format_partitions(many[:2]) == "t-0, t-1"
