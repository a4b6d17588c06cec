"""ListOffsets by log start, log end, timestamp and largest timestamp, and what it hides."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.harness import ME, NOW_MS, OTHER, ApiHarness, batch, topic_state

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.LIST_OFFSETS
VERSIONS = APIS[KEY].versions[1:]  # version 0 has other fields: see test_list_offsets_v0
P0 = TopicPartition("orders", 0)
LATEST, EARLIEST, LARGEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def ask(
    harness: ApiHarness, version: int, timestamp: int, *, topic: str = "orders", **values: Any
) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp, **values.pop("partition", {})}
    reply = harness.ask(
        KEY, version, replica_id=-1, topics=[{"name": topic, "partitions": [partition]}], **values
    )
    (answer,) = reply.topics[0].partitions
    return answer


def result(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.offset, answer.timestamp


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_finds_start_end_and_time(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", epoch=2)
    harness.fill("orders", batch(b"a", b"b", at_ms=NOW_MS), batch(b"c", at_ms=NOW_MS + 100))
    harness.replicas.delete_records(P0, Offset(1))
    assert result(ask(harness, version, LATEST)) == (0, 3, -1)
    assert result(ask(harness, version, EARLIEST)) == (0, 1, -1)
    assert result(ask(harness, version, NOW_MS + 1)) == (0, 1, NOW_MS + 1)
    assert result(ask(harness, version, NOW_MS + 2)) == (0, 2, NOW_MS + 100)
    assert result(ask(harness, version, NOW_MS + 101)) == (0, -1, -1)
    if version >= 4:
        assert ask(harness, version, LATEST).leader_epoch == 2
        assert ask(harness, version, NOW_MS).leader_epoch == 2
    if version >= 2:
        assert harness.ask(KEY, version, topics=[]).throttle_time == timedelta()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_largest_timestamp_is_found_from_version_7_on(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"late", at_ms=NOW_MS + 500), batch(b"early", at_ms=NOW_MS))
    answer = ask(harness, version, LARGEST)
    if version >= 7:
        assert result(answer) == (0, 0, NOW_MS + 500)
    else:
        assert result(answer) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_earliest_local_offset_is_the_logs_start_from_version_8_on(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"), batch(b"b"))
    harness.replicas.delete_records(P0, Offset(1))
    answer = ask(harness, version, EARLIEST_LOCAL)
    expected = (0, 1, -1) if version >= 8 else (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert result(answer) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_without_tiered_storage_there_is_no_latest_tiered_offset(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"), batch(b"b"))
    code = ErrorCode.NONE if version >= 9 else ErrorCode.UNSUPPORTED_VERSION
    assert result(ask(harness, version, LATEST_TIERED)) == (code, -1, -1)


@pytest.mark.parametrize("timestamp", [-6, -(2**63)])
def test_other_negative_timestamps_are_unsupported(harness: ApiHarness, timestamp: int) -> None:
    harness.make_topic("orders")
    answer = ask(harness, VERSIONS[-1], timestamp)
    assert result(answer) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


@pytest.mark.parametrize("timestamp", [LARGEST, 0, 2**63 - 1])
def test_an_empty_log_has_no_timestamps(harness: ApiHarness, timestamp: int) -> None:
    harness.make_topic("orders")
    assert result(ask(harness, 8, timestamp)) == (0, -1, -1)


def transactional() -> bytearray:
    return batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)


@pytest.mark.parametrize("version", range(2, VERSIONS[-1] + 1))
def test_read_committed_ends_at_the_last_stable_offset(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a", at_ms=NOW_MS))
    open_one = transactional()
    harness.replicas.append([(P0, memoryview(open_one))], acks=1, timeout_ms=0, done=lambda _: None)
    assert result(ask(harness, version, LATEST)) == (0, 2, -1)
    assert result(ask(harness, version, LATEST, isolation_level=1)) == (0, 1, -1)
    harness.fill("orders", batch(b"b", at_ms=NOW_MS + 900))
    assert result(ask(harness, version, NOW_MS + 900)) == (0, 2, NOW_MS + 900)
    assert result(ask(harness, version, NOW_MS + 900, isolation_level=1)) == (0, -1, -1)


@pytest.mark.parametrize("replica_id", [-1, -2, OTHER, 77])
def test_no_offset_above_the_high_watermark_is_returned(
    harness: ApiHarness, replica_id: int
) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    harness.fill("orders", batch(b"a", at_ms=NOW_MS))
    for timestamp, expected in (
        (LATEST, (0, 0, -1)),
        (NOW_MS, (0, -1, -1)),
        (LARGEST, (0, -1, -1)),
    ):
        reply = harness.ask(
            KEY,
            8,
            replica_id=replica_id,
            topics=[
                {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
            ],
        )
        assert result(reply.topics[0].partitions[0]) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_leader_does_not_return_an_offset_below_an_earlier_one(
    harness: ApiHarness, version: int
) -> None:
    """KIP-207: its high watermark is below the start offset of its epoch, for a moment."""
    harness.make_topic("orders", replicas=(ME, OTHER))
    harness.fill("orders", batch(b"a", at_ms=NOW_MS))
    harness.make_topic("orders", replicas=(ME, OTHER), epoch=1)
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    assert result(ask(harness, version, LATEST)) == (code, -1, -1)
    assert result(ask(harness, version, NOW_MS)) == (code, -1, -1)
    assert result(ask(harness, version, EARLIEST)) == (0, 0, -1)
    harness.replicas.update_follower_end_offset(harness.replicas.get(P0), OTHER, Offset(1))
    assert result(ask(harness, version, LATEST)) == (0, 1, -1)


@pytest.mark.parametrize("version", range(4, VERSIONS[-1] + 1))
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_are_fenced_by_leader_epoch(
    harness: ApiHarness, version: int, epoch: int, code: ErrorCode
) -> None:
    harness.make_topic("orders", epoch=5)
    answer = ask(harness, version, LATEST, partition={"current_leader_epoch": epoch})
    assert answer.error_code == code


def test_absent_and_foreign_partitions_are_refused(harness: ApiHarness) -> None:
    harness.update_metadata(topic_state("far", replicas=(OTHER,), leader=OTHER))
    assert ask(harness, 8, LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(harness, 8, LATEST, topic="far").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_named_twice_is_refused_each_time(harness: ApiHarness) -> None:
    harness.make_topic("orders", 2)
    entries = [{"partition_index": index, "timestamp": LATEST} for index in (0, 1, 0)]
    reply = harness.ask(KEY, 8, topics=[{"name": "orders", "partitions": entries}])
    assert [partition.error_code for partition in reply.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_permission_comes_before_existence(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    for topic in ("orders", "absent"):
        harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        answer = ask(harness, version, LATEST, topic=topic)
        assert result(answer) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
