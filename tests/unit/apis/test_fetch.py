"""Fetch: what is read, up to which offset, how much of it, and when the response is sent."""

import errno
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.harness import (
    ME,
    OTHER,
    ApiHarness,
    FakeConnection,
    Sent,
    batch,
    node,
    topic_id_of,
    topic_state,
)

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import iter_headers
from penstock.protocol.control import build_end_marker_batch
from penstock.replication.delayed_produce import PartitionAppended
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.storage.engine import AppendOrigin

KEY = ApiKey.FETCH
VERSIONS = APIS[KEY].versions
LATEST = VERSIONS[-1]
P0 = TopicPartition("orders", 0)
MIB = 1 << 20


def send(
    harness: ApiHarness,
    version: int = LATEST,
    offsets: dict[int, int] | Sequence[tuple[int, int]] | None = None,
    *,
    topic: str = "orders",
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 * MIB,
    partition_bytes: int = MIB,
    partition: dict[str, Any] | None = None,
    **values: Any,
) -> Sent:
    entries = offsets.items() if isinstance(offsets, dict) else offsets or [(0, 0)]
    return harness.send(
        KEY,
        version,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            {
                "topic": topic,
                "topic_id": topic_id_of(topic),
                "partitions": [
                    {
                        "partition": index,
                        "fetch_offset": offset,
                        "partition_max_bytes": partition_bytes,
                        **(partition or {}),
                    }
                    for index, offset in entries
                ],
            }
        ],
        **values,
    )


def answers(sent: Sent) -> list[Any]:
    return [partition for topic in sent.reply.responses for partition in topic.partitions]


def only(sent: Sent) -> Any:
    (answer,) = answers(sent)
    return answer


def offsets_in(answer: Any) -> list[int]:
    """Return the base offsets of the batches that were sent, all of them whole."""
    records = bytes(answer.records)
    result = [header for _, header in iter_headers(records)]
    assert sum(header.size for header in result) == len(records)
    return [header.base_offset for header in result]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads_whole_batches(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 2, epoch=3)
    harness.fill("orders", batch(b"a", b"b"), batch(b"c"))
    sent = send(harness, version, {0: 0, 1: 0})
    first, second = answers(sent)
    assert (first.partition_index, first.error_code, first.high_watermark) == (0, 0, 3)
    assert offsets_in(first) == [0, 2]
    assert (second.partition_index, bytes(second.records or b"")) == (1, b"")
    assert first.last_stable_offset == 3
    assert first.aborted_transactions is None
    (topic,) = sent.reply.responses
    if version >= 13:
        assert topic.topic_id == topic_id_of("orders")
    else:
        assert topic.topic == "orders"
    if version >= 5:
        assert first.log_start_offset == 0
    if version >= 7:
        assert sent.reply.error_code == 0
    if version >= 11:
        assert first.preferred_read_replica == -1


# -- how much is read ----------------------------------------------------------------------


def test_an_offset_inside_a_batch_gets_the_whole_batch(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a", b"b", b"c"), batch(b"d"))
    for offset in (0, 1, 2):
        assert offsets_in(only(send(harness, offsets={0: offset}))) == [0, 3]
    assert offsets_in(only(send(harness, offsets={0: 3}))) == [3]


@pytest.mark.parametrize(("max_bytes", "partition_bytes"), [(0, MIB), (MIB, 0), (1, 1), (-5, -5)])
def test_the_first_batch_is_sent_whole_whatever_the_limits(
    harness: ApiHarness, max_bytes: int, partition_bytes: int
) -> None:
    harness.make_topic("orders", 2)
    for partition in (0, 1):
        harness.fill("orders", batch(b"x" * 500), batch(b"y"), partition=partition)
    sent = send(harness, offsets={0: 0, 1: 0}, max_bytes=max_bytes, partition_bytes=partition_bytes)
    first, second = answers(sent)
    assert (offsets_in(first), offsets_in(second)) == ([0], [])
    assert second.high_watermark == 2


def test_limits_are_kept_with_whole_batches(harness: ApiHarness) -> None:
    harness.make_topic("orders", 3)
    size = len(batch(b"x" * 500))
    for partition in range(3):
        harness.fill("orders", *[batch(b"x" * 500) for _ in range(4)], partition=partition)
    three = {0: 0, 1: 0, 2: 0}
    by_partition = send(harness, offsets=three, partition_bytes=2 * size + 1)
    assert [offsets_in(answer) for answer in answers(by_partition)] == [[0, 1]] * 3
    in_all = send(harness, offsets=three, max_bytes=5 * size + 1)
    assert [offsets_in(answer) for answer in answers(in_all)] == [[0, 1, 2, 3], [0], []]


def test_fetch_max_bytes_of_the_broker_applies_too(tmp_path: Path) -> None:
    harness = ApiHarness(tmp_path, settings={"fetch.max.bytes": "1024"})
    harness.make_topic("orders")
    harness.fill("orders", *[batch(b"x" * 500) for _ in range(4)])
    assert offsets_in(only(send(harness, partition_bytes=2**31 - 1, max_bytes=2**31 - 1))) == [0]
    harness.close()


def test_a_partition_requested_twice_is_returned_once_with_the_last_entry(
    harness: ApiHarness,
) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"), batch(b"b"))
    assert offsets_in(only(send(harness, offsets=[(0, 0), (0, 1)]))) == [1]


# -- up to which offset --------------------------------------------------------------------


def test_nothing_above_the_high_watermark_is_sent(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    for _ in range(2):
        append(harness, batch(b"a"))
    assert (only(send(harness)).high_watermark, offsets_in(only(send(harness)))) == (0, [])
    harness.replicas.update_follower_end_offset(harness.replicas.get(P0), OTHER, Offset(1))
    assert (only(send(harness)).high_watermark, offsets_in(only(send(harness)))) == (1, [0])
    # An offset between the high watermark and the log end is valid, and has no records yet.
    assert only(send(harness, offsets={0: 2})).error_code == 0


@pytest.mark.parametrize("offset", [-1, -(2**63), 4, 5, 2**63 - 1])
def test_an_offset_out_of_range_returns_the_bounds_at_once(
    harness: ApiHarness, offset: int
) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"), batch(b"b"), batch(b"c"))
    answer = only(send(harness, offsets={0: offset}, wait_ms=1000))
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.log_start_offset) == (3, 0)
    assert not answer.records


def test_deleted_records_are_out_of_range(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"), batch(b"b"))
    harness.replicas.delete_records(P0, Offset(1))
    answer = only(send(harness))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


def append(
    harness: ApiHarness, records: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT
) -> None:
    done: list[PartitionAppended] = []
    harness.replicas.append(
        [(P0, memoryview(records))], acks=1, timeout_ms=0, origin=origin, done=done.extend
    )
    assert [appended.code for appended in done] == [ErrorCode.NONE]


def transactional(producer_id: int, sequence: int) -> bytearray:
    return batch(
        b"v",
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def marker(producer_id: int, *, commit: bool) -> bytearray:
    return bytearray(
        build_end_marker_batch(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=0,
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wait_ms", [0, 100])
def test_read_committed_ends_at_the_last_stable_offset_and_lists_aborted_transactions(
    harness: ApiHarness, version: int, wait_ms: int
) -> None:
    harness.make_topic("orders")
    append(harness, transactional(1, 0))
    append(harness, transactional(2, 0))
    append(harness, marker(1, commit=False), AppendOrigin.COORDINATOR)
    waiting = send(harness, version, {0: 1}, isolation_level=1, wait_ms=wait_ms)
    everything = only(send(harness, version))
    assert (offsets_in(everything), everything.aborted_transactions) == ([0, 1, 2], None)
    stable = only(send(harness, version, isolation_level=1))
    assert (stable.high_watermark, stable.last_stable_offset) == (3, 1)
    assert offsets_in(stable) == [0]
    append(harness, marker(2, commit=True), AppendOrigin.COORDINATOR)
    after = only(send(harness, version, isolation_level=1))
    assert offsets_in(after) == [0, 1, 2, 3]
    aborted = [
        (transaction.producer_id, transaction.first_offset)
        for transaction in after.aborted_transactions
    ]
    assert aborted == [(1, 0)]
    if wait_ms:  # a delayed fetch has the list too (KAFKA-5376)
        delayed = only(waiting)
        assert offsets_in(delayed) == [1, 2, 3]
        result = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in delayed.aborted_transactions
        ]
        assert result == [(1, 0)]


def test_read_committed_without_records_lists_no_aborted_transactions(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    assert only(send(harness, isolation_level=1)).aborted_transactions == ()


# -- delayed fetches -----------------------------------------------------------------------


def test_a_fetch_is_delayed_until_the_first_byte(harness: ApiHarness) -> None:
    harness.make_topic("orders", 2)
    sent = send(harness, offsets={0: 0, 1: 0}, wait_ms=500)
    assert not sent.is_answered
    harness.fill("orders", batch(b"a"), partition=1)
    assert [offsets_in(answer) for answer in answers(sent)] == [[], [0]]
    assert harness.replicas.fetch_purgatory.statistics().delayed == 0


def test_a_delayed_fetch_expires_at_its_deadline(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    sent = send(harness, wait_ms=500)
    harness.clock.advance_ms(499)
    assert not sent.is_answered
    harness.clock.advance_ms(2)
    assert (only(sent).error_code, offsets_in(only(sent))) == (0, [])


def test_the_longest_max_wait_is_honoured(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    sent = send(harness, wait_ms=2**31 - 1)
    harness.clock.advance_ms(10**6)
    assert not sent.is_answered
    harness.fill("orders", batch(b"a"))
    assert offsets_in(only(sent)) == [0]


@pytest.mark.parametrize("wait_ms", [0, -1, -(2**31)])
def test_a_fetch_without_max_wait_is_not_delayed(harness: ApiHarness, wait_ms: int) -> None:
    harness.make_topic("orders")
    assert offsets_in(only(send(harness, wait_ms=wait_ms))) == []


@pytest.mark.parametrize("min_bytes", [0, -1, -(2**31)])
def test_a_fetch_with_min_bytes_0_is_not_delayed(harness: ApiHarness, min_bytes: int) -> None:
    harness.make_topic("orders")
    assert offsets_in(only(send(harness, wait_ms=1000, min_bytes=min_bytes))) == []


def test_a_fetch_waits_for_min_bytes_over_all_partitions(harness: ApiHarness) -> None:
    harness.make_topic("orders", 2)
    size = len(batch(b"x" * 100))
    sent = send(harness, offsets={0: 0, 1: 0}, wait_ms=500, min_bytes=3 * size)
    for partition in (0, 1):
        harness.fill("orders", batch(b"x" * 100), partition=partition)
        assert not sent.is_answered
    harness.fill("orders", batch(b"x" * 100), partition=0)
    assert [offsets_in(answer) for answer in answers(sent)] == [[0, 1], [0]]


def test_min_bytes_is_capped_at_max_bytes(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    sent = send(harness, wait_ms=500, min_bytes=MIB, max_bytes=10)
    assert not sent.is_answered
    harness.fill("orders", batch(b"x" * 100))
    assert offsets_in(only(sent)) == [0]


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_fetch_with_an_error_is_not_delayed(harness: ApiHarness, wait_ms: int) -> None:
    harness.make_topic("orders")
    sent = send(harness, offsets={0: 0, 9: 0}, wait_ms=wait_ms)
    assert [answer.error_code for answer in answers(sent)] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_an_empty_fetch_is_not_delayed(harness: ApiHarness) -> None:
    assert harness.ask(KEY, 4, max_wait=timedelta(seconds=1), min_bytes=1).responses == ()


def test_losing_leadership_completes_a_delayed_fetch(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    sent = send(harness, wait_ms=1000)
    harness.make_topic("orders", replicas=(ME, OTHER), leader=OTHER, epoch=1)
    assert only(sent).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deleting_the_topic_completes_a_delayed_fetch(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    sent = send(harness, 12, wait_ms=1000)
    harness.delete_topic("orders")
    assert only(sent).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_closed_connection_cancels_its_delayed_operation(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    connection = FakeConnection()
    sent = send(harness, wait_ms=1000, connection=connection)
    connection.close("went away")
    assert harness.replicas.fetch_purgatory.statistics().delayed == 0
    harness.fill("orders", batch(b"a"))
    harness.clock.advance_ms(2000)
    assert not sent.is_answered
    assert held_files(harness) == 0


# -- leases --------------------------------------------------------------------------------


def held_files(harness: ApiHarness) -> int:
    return sum(
        segment.file.leases
        for log in harness.engine._logs.values()
        for segment in log.segments.starting_from(0)
    )


def test_files_are_leased_until_the_response_was_sent(harness: ApiHarness) -> None:
    harness.make_topic("orders", 2)
    for partition in (0, 1):
        harness.fill("orders", batch(b"a"), partition=partition)
    harness.connection.holds_leases = True
    send(harness, offsets={0: 0, 1: 0})
    assert held_files(harness) == 2
    (lease,) = harness.connection.held
    lease.release()
    lease.release()
    assert held_files(harness) == 0


@pytest.mark.parametrize("min_bytes", [1, 10_000])
def test_measuring_sizes_leases_no_file(harness: ApiHarness, min_bytes: int) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"))
    send(harness, offsets={0: 1 if min_bytes == 1 else 0}, wait_ms=1000, min_bytes=min_bytes)
    assert harness.replicas.fetch_purgatory.statistics().delayed == 1
    assert held_files(harness) == 0


# -- leaders and epochs --------------------------------------------------------------------


@pytest.mark.parametrize("version", range(9, LATEST + 1))
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2**31 - 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_fetches_are_fenced_by_leader_epoch(
    harness: ApiHarness, version: int, epoch: int, code: ErrorCode
) -> None:
    harness.make_topic("orders", epoch=5)
    answer = only(send(harness, version, partition={"current_leader_epoch": epoch}))
    assert answer.error_code == code
    if code is ErrorCode.FENCED_LEADER_EPOCH and version >= 16:
        assert answer.current_leader.leader_epoch == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_the_current_leader_is_sent_from_version_16_on(harness: ApiHarness, version: int) -> None:
    harness.update_metadata(
        topic_state("orders", epoch=6, replicas=(OTHER,), leader=OTHER),
        brokers=(node(ME), node(OTHER)),
    )
    sent = send(harness, version)
    answer = only(sent)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    if version >= 16:
        leader = answer.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (OTHER, 6)
        assert [
            (endpoint.node_id, endpoint.host, endpoint.port)
            for endpoint in sent.reply.node_endpoints
        ] == [(OTHER, "host-2", 9002)]


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_diverging_reader_gets_the_diverging_epoch(harness: ApiHarness, wait_ms: int) -> None:
    harness.make_topic("orders", epoch=2)
    harness.fill("orders", batch(b"a"), batch(b"b"))
    harness.make_topic("orders", epoch=7)
    harness.fill("orders", batch(b"c"))
    answer = only(
        send(harness, offsets={0: 3}, wait_ms=wait_ms, partition={"last_fetched_epoch": 2})
    )
    assert (answer.error_code, answer.diverging_epoch.epoch) == (0, 2)
    assert answer.diverging_epoch.end_offset == 2
    same = only(send(harness, offsets={0: 2}, partition={"last_fetched_epoch": 2}))
    assert (same.diverging_epoch.epoch, offsets_in(same)) == (-1, [2])
    unknown = only(send(harness, partition={"last_fetched_epoch": 8}))
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- topic ids -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(13, LATEST + 1))
def test_an_unknown_topic_id_is_refused(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    answer = only(send(harness, version, topic="other", wait_ms=1000))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_recreated_topic_is_not_the_requested_one(harness: ApiHarness) -> None:
    """KAFKA-12257: the name is the same, but the offsets belong to another log."""
    harness.make_topic("orders")
    harness.fill("orders", batch(b"old"))
    harness.delete_topic("orders")
    harness.make_topic("orders", topic_id=topic_id_of("second"))
    assert only(send(harness)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_log_with_another_topic_id_is_not_read(harness: ApiHarness) -> None:
    """The metadata has the new id already, the replica still has the old one."""
    harness.make_topic("orders")
    harness.update_metadata(topic_state("orders", topic_id=topic_id_of("second")))
    sent = harness.send(
        KEY,
        13,
        topics=[{"topic_id": topic_id_of("second"), "partitions": [{"partition": 0}]}],
    )
    assert only(sent).error_code == ErrorCode.INCONSISTENT_TOPIC_ID


# -- permissions ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_needs_permission_before_anything_is_revealed(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"secret"))
    harness.guard.deny(AclOperation.READ, ResourceType.TOPIC, "orders")
    sent = send(harness, version, {0: 0, 77: 0}, wait_ms=1000)
    assert {answer.error_code for answer in answers(sent)} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert {answer.high_watermark for answer in answers(sent)} == {-1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_client_posing_as_a_follower_changes_nothing(
    harness: ApiHarness, version: int, is_allowed: bool
) -> None:
    """CVE-2018-1288: a client that impersonates a follower must not move the high watermark."""
    harness.make_topic("orders", replicas=(ME, OTHER))
    append(harness, batch(b"a"))
    if not is_allowed:
        harness.guard.deny(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    answer = only(
        send(
            harness,
            version,
            {0: 1},
            wait_ms=1000,
            replica_id=2,
            replica_state={"replica_id": OTHER},
        )
    )
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # on a client listener
    assert harness.replicas.get(P0).high_watermark == 0


# -- failures ------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 1000])
def test_a_partition_that_cannot_be_read_fails_alone(harness: ApiHarness, wait_ms: int) -> None:
    harness.make_topic("orders", 2)
    for partition in (0, 1):
        harness.fill("orders", batch(b"a"), partition=partition)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "the disk is gone")

    harness.replicas.get(P0).log.read = fail  # type: ignore[method-assign]
    sent = send(harness, offsets={0: 0, 1: 0}, wait_ms=wait_ms, min_bytes=2)
    first, second = answers(sent)
    assert (first.error_code, second.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert offsets_in(second) == [0]
    assert "the disk is gone" in harness.reports[-1]
