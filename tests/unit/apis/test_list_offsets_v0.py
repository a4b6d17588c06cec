"""ListOffsets version 0: base offsets of segments, the newest first."""

from typing import Any

import pytest
from tests.unit.apis.harness import ME, NOW_MS, OTHER, ApiHarness, batch, topic_state

from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.LIST_OFFSETS
P0 = TopicPartition("orders", 0)
LATEST, EARLIEST = -1, -2
ALL = 100
ONE_BATCH = {"segment.bytes": "100"}  # rolls a segment per batch


def ask(harness: ApiHarness, timestamp: int, most: int = ALL, **fields: Any) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": most}
    topic = {"name": fields.pop("topic", "orders"), "partitions": [partition]}
    reply = harness.ask(KEY, 0, topics=[topic], **{"replica_id": -1, **fields})
    ((answer,),) = [topic.partitions for topic in reply.topics]
    assert answer.partition_index == 0
    return answer


def offsets(harness: ApiHarness, timestamp: int, most: int = ALL, **fields: Any) -> list[int]:
    answer = ask(harness, timestamp, most, **fields)
    assert answer.error_code == ErrorCode.NONE
    return list(answer.old_style_offsets)


def fill(harness: ApiHarness, *times_ms: int, **options: Any) -> None:
    """Make a topic with a segment of two records per timestamp."""
    harness.make_topic("orders", configs=ONE_BATCH, **options)
    for at_ms in times_ms:
        harness.fill("orders", batch(b"a", b"b", at_ms=at_ms - 1))  # the second is 1 ms later
    assert harness.replicas.get(P0).log.statistics().segments == max(1, len(times_ms))


def test_the_latest_are_the_high_watermark_and_all_segments(harness: ApiHarness) -> None:
    fill(harness, 100, 200, 300)
    assert offsets(harness, LATEST) == [6, 4, 2, 0]
    assert offsets(harness, LATEST, 2) == [6, 4]
    assert offsets(harness, LATEST, 1) == [6]
    assert offsets(harness, LATEST, 0) == []


def test_the_earliest_is_the_log_start_offset_alone(harness: ApiHarness) -> None:
    fill(harness, 100, 200, 300)
    assert offsets(harness, EARLIEST) == [0]
    harness.replicas.delete_records(P0, Offset(3))
    assert offsets(harness, EARLIEST) == [3]
    assert offsets(harness, LATEST) == [6, 4, 3]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(99, []), (100, [0]), (199, [0]), (200, [2, 0]), (300, [4, 2, 0]), (NOW_MS - 1, [4, 2, 0])],
)
def test_a_time_lists_segments_from_the_newest_without_later_records(
    harness: ApiHarness, timestamp: int, expected: list[int]
) -> None:
    fill(harness, 100, 200, 300)
    assert offsets(harness, timestamp) == expected
    assert offsets(harness, timestamp, 1) == expected[:1]


@pytest.mark.parametrize("timestamp", [NOW_MS, 2**63 - 1])
def test_a_timestamp_from_now_on_lists_the_log_end_too(harness: ApiHarness, timestamp: int) -> None:
    fill(harness, 100, NOW_MS + 1_000)
    assert offsets(harness, timestamp) == [4, 2, 0]


def test_segments_older_than_the_first_match_are_listed_whatever_their_timestamps(
    harness: ApiHarness,
) -> None:
    fill(harness, 100, 900, 300)
    assert offsets(harness, 300) == [4, 2, 0]
    assert offsets(harness, 299) == [0]


def test_records_without_timestamps_are_as_old_as_their_segment(harness: ApiHarness) -> None:
    harness.make_topic("orders", configs=ONE_BATCH)
    harness.fill("orders", batch(b"a", at_ms=-1))
    created_ms = harness.wall_ms
    harness.wall_ms += 1_000
    assert offsets(harness, created_ms) == [0]
    assert offsets(harness, created_ms - 1) == []


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, NOW_MS])
def test_an_empty_log_starts_and_ends_at_0(harness: ApiHarness, timestamp: int) -> None:
    fill(harness)
    assert offsets(harness, timestamp) == [0]


@pytest.mark.parametrize("replica_id", [-1, -2, OTHER])
def test_no_offset_above_the_high_watermark_is_listed(harness: ApiHarness, replica_id: int) -> None:
    fill(harness, 100, 200, 300, replicas=(ME, OTHER))
    assert offsets(harness, LATEST, replica_id=replica_id) == [0]
    harness.replicas.update_follower_end_offset(harness.replicas.get(P0), OTHER, Offset(3))
    assert offsets(harness, LATEST, replica_id=replica_id) == [3, 2, 0]
    assert offsets(harness, 300, 1, replica_id=replica_id) == [3]


@pytest.mark.parametrize(
    ("timestamp", "most", "code"),
    [
        (-3, ALL, ErrorCode.UNSUPPORTED_VERSION),
        (-4, ALL, ErrorCode.UNSUPPORTED_VERSION),
        (-(2**63), ALL, ErrorCode.UNSUPPORTED_VERSION),
        (LATEST, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_timestamp_or_count_is_refused(
    harness: ApiHarness, timestamp: int, most: int, code: ErrorCode
) -> None:
    fill(harness, 100)
    answer = ask(harness, timestamp, most)
    assert (answer.error_code, answer.old_style_offsets) == (code, ())


def test_absent_and_foreign_partitions_are_refused(harness: ApiHarness) -> None:
    harness.update_metadata(topic_state("far", replicas=(OTHER,), leader=OTHER))
    assert ask(harness, LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(harness, LATEST, topic="far").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_named_twice_is_refused_each_time(harness: ApiHarness) -> None:
    """Each entry may list every segment, so a small request would get an unbounded response."""
    fill(harness, 100)
    entry = {"partition_index": 0, "timestamp": LATEST, "max_num_offsets": ALL}
    reply = harness.ask(KEY, 0, topics=[{"name": "orders", "partitions": [entry, entry]}])
    codes = [partition.error_code for partition in reply.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_permission_comes_before_existence(harness: ApiHarness) -> None:
    fill(harness, 100)
    for topic in ("orders", "absent"):
        harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        answer = ask(harness, LATEST, topic=topic)
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert answer.old_style_offsets == ()
