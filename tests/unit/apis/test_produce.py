"""Produce: what is appended, what is refused, and when the response is sent."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.harness import (
    ME,
    NOW_MS,
    OTHER,
    ApiHarness,
    FakeConnection,
    Sent,
    batch,
    node,
    topic_state,
)

from penstock.apis.data.leader_hints import HintedBroker, LeaderHint
from penstock.apis.data.produce import FIRST_WITH_BATCHES
from penstock.apis.data.produce_response import encode_produce_response
from penstock.apis.registry import APIS
from penstock.apis.response_shapes import response_shape
from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.compression import Codec
from penstock.protocol.frames import encode_response_frame
from penstock.protocol.malformed import MalformedRequest
from penstock.protocol.produce_request import TopicRecords
from penstock.protocol.records import Record, build_batch
from penstock.replication.delayed_produce import PartitionAppended
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.PRODUCE
VERSIONS = range(FIRST_WITH_BATCHES, APIS[KEY].versions[-1] + 1)
LATEST = VERSIONS[-1]
P0 = TopicPartition("orders", 0)
Records = bytes | bytearray | None


def send(
    harness: ApiHarness,
    version: int = LATEST,
    topics: dict[str, dict[int, Records]] | None = None,
    *,
    acks: int = -1,
    timeout_ms: int = 1000,
    **values: Any,
) -> Sent:
    return harness.send(
        KEY,
        version,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=[
            {
                "name": name,
                "partition_data": [
                    {"index": index, "records": records} for index, records in entries.items()
                ],
            }
            for name, entries in (topics or {"orders": {0: batch(b"one", b"two")}}).items()
        ],
        **values,
    )


def answers(sent: Sent) -> list[Any]:
    return [response for topic in sent.reply.responses for response in topic.partition_responses]


def codes(sent: Sent) -> list[ErrorCode]:
    return [get_error(answer.error_code) for answer in answers(sent)]


def end_of(harness: ApiHarness, partition: TopicPartition = P0) -> int:
    return harness.replicas.get(partition).log_end_offset


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends_and_returns_the_offset(
    harness: ApiHarness, version: int, acks: int
) -> None:
    harness.make_topic("orders", 2)
    send(harness, version, acks=acks)
    topics: dict[str, dict[int, Records]] = {"orders": {1: batch(), 0: batch()}}
    reply = send(harness, version, topics, acks=acks).reply
    assert [topic.name for topic in reply.responses] == ["orders"]
    result = [
        (response.index, response.error_code, response.base_offset)
        for response in reply.responses[0].partition_responses
    ]
    assert result == [(1, 0, 0), (0, 0, 2)]
    assert end_of(harness) == 3
    if version >= 5:
        assert {
            response.log_start_offset for response in reply.responses[0].partition_responses
        } == {0}


# -- the encoder ---------------------------------------------------------------------------

HINT = LeaderHint(OTHER, LeaderEpoch(3))
FAR = HintedBroker(OTHER, "hôst", 9093, "rack-2")
NEAR = HintedBroker(ME, "127.0.0.1", 9092, None)


def appended(code: ErrorCode = ErrorCode.NONE, **fields: Any) -> PartitionAppended:
    plain = PartitionAppended(code, Offset(2**40), TimestampMs(-1), Offset(5), None)
    return plain._replace(**fields)


CASES: dict[str, tuple[list[PartitionAppended], dict[int, LeaderHint], list[HintedBroker]]] = {
    "plain": ([appended(), appended()], {}, []),
    "append time": ([appended(log_append_time_ms=NOW_MS), appended()], {}, []),
    "errors": (
        [
            appended(ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1, message="tœo large"),
            appended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, base_offset=-1, log_start_offset=-1),
        ],
        {},
        [],
    ),
    "record errors": (
        [
            appended(
                ErrorCode.INVALID_RECORD,
                message="twö records",
                record_errors=((0, "no key"), (2**31 - 1, "nö key")),
            ),
            appended(ErrorCode.INVALID_TIMESTAMP, record_errors=((7, "m" * 300),)),
        ],
        {1: HINT},
        [],
    ),
    "long message": ([appended(ErrorCode.INVALID_RECORD, message="m" * 300), appended()], {}, []),
    "another leader": (
        [appended(ErrorCode.NOT_LEADER_OR_FOLLOWER), appended()],
        {0: HINT},
        [FAR, NEAR],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_generic_encoder(version: int, case: str) -> None:
    given, hints, nodes = CASES[case]
    one: list[TopicRecords] = [("orders", [(0, None), (7, None)])]
    two: list[TopicRecords] = [("a", [(0, None)]), ("ü", [(9, None)])]
    for topics in (one, two):
        frame = encode_produce_response(
            version=version,
            correlation_id=77,
            topics=topics,
            results=given,
            hints=hints,
            nodes=nodes,
        )
        assert frame == generic(version, topics, given, hints, nodes)


def generic(
    version: int,
    topics: Any,
    given: list[PartitionAppended],
    hints: dict[int, LeaderHint],
    nodes: list[HintedBroker],
) -> bytes:
    shape = response_shape(KEY, version)
    topic_shape = shape["responses"]
    partition_shape = topic_shape["partition_responses"]
    places = iter(enumerate(given))
    responses = []
    for name, entries in topics:
        partitions = []
        for index, _ in entries:
            position, answer = next(places)
            values: dict[str, Any] = {
                "index": index,
                "error_code": answer.code,
                "base_offset": answer.base_offset,
                "log_append_time": as_time(answer.log_append_time_ms),
                "log_start_offset": answer.log_start_offset,
                "record_errors": (),
                "error_message": answer.message,
            }
            if answer.record_errors and "record_errors" in partition_shape:
                error_shape = partition_shape["record_errors"]
                values["record_errors"] = tuple(
                    error_shape(batch_index=number, batch_index_error_message=text)
                    for number, text in answer.record_errors
                )
            if position in hints and "current_leader" in partition_shape:
                leader, leader_epoch = hints[position]
                values["current_leader"] = partition_shape["current_leader"](
                    leader_id=leader, leader_epoch=leader_epoch
                )
            partitions.append(partition_shape(**values))
        responses.append(topic_shape(name=name, partition_responses=tuple(partitions)))
    endpoints: tuple[Any, ...] = ()
    if "node_endpoints" in shape:
        endpoints = tuple(
            shape["node_endpoints"](
                node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in nodes
        )
    message = shape(responses=tuple(responses), throttle_time=timedelta(), node_endpoints=endpoints)
    return encode_response_frame(message, correlation_id=77)


def as_time(timestamp_ms: int) -> datetime | None:
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)


# -- when the response is sent -------------------------------------------------------------


def test_acks_all_waits_for_the_in_sync_replicas_and_lets_the_next_request_start(
    harness: ApiHarness,
) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    first, second = send(harness), send(harness)
    assert not first.is_answered
    assert harness.connection.may_start_next == 2
    assert end_of(harness) == 4
    harness.replicas.update_follower_end_offset(harness.replicas.get(P0), OTHER, Offset(2))
    assert [first.is_answered, second.is_answered] == [True, False]
    harness.replicas.update_follower_end_offset(harness.replicas.get(P0), OTHER, Offset(4))
    assert [answer.base_offset for answer in answers(first) + answers(second)] == [0, 2]


def test_a_delayed_produce_times_out(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    sent = send(harness, timeout_ms=50)
    harness.clock.advance_ms(49)
    assert not sent.is_answered
    harness.clock.advance_ms(10)
    assert codes(sent) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_negative_timeout_expires_at_once(harness: ApiHarness, timeout_ms: int) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    sent = send(harness, timeout_ms=timeout_ms)
    harness.clock.advance_ms(2)
    assert codes(sent) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_closed_connection_cancels_its_delayed_operation(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    sent = send(harness)
    harness.connection.close("went away")
    assert harness.replicas.produce_purgatory.statistics().delayed == 0
    harness.replicas.update_follower_end_offset(harness.replicas.get(P0), OTHER, Offset(2))
    assert not sent.is_answered


def test_acks_0_gets_no_response(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    sent = send(harness, acks=0)
    assert sent.is_answered
    assert (sent.bytes, harness.connection.is_closed, end_of(harness)) == (b"", False, 2)


@pytest.mark.parametrize("topic", ["absent", "orders"])
def test_an_error_with_acks_0_closes_the_connection(harness: ApiHarness, topic: str) -> None:
    harness.make_topic("orders")
    damaged = batch(b"x")
    damaged[-1] ^= 1
    send(harness, topics={topic: {0: damaged}}, acks=0)
    assert harness.connection.is_closed
    assert f"{topic}-0" in str(harness.connection.closed_because)


@pytest.mark.parametrize("acks", [2, -2, 127, -(2**15), 2**15 - 1])
def test_other_acks_are_refused(harness: ApiHarness, acks: int) -> None:
    harness.make_topic("orders")
    assert codes(send(harness, acks=acks)) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert end_of(harness) == 0


# -- what is refused -----------------------------------------------------------------------


def test_each_partition_has_its_own_result_in_request_order(harness: ApiHarness) -> None:
    harness.make_topic("orders", 3)
    damaged = batch(b"x")
    damaged[-1] ^= 1
    old = batch(b"x")
    old[16] = 1
    topics: dict[str, dict[int, Records]] = {
        "absent": {0: batch()},
        "orders": {9: batch(), 0: batch(), 1: damaged, 2: None},
        "secret": {0: batch()},
        "__consumer_offsets": {0: batch()},
    }
    harness.guard.deny(AclOperation.WRITE, ResourceType.TOPIC, "secret")
    sent = send(harness, topics=topics)
    assert codes(sent) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert [answer.base_offset for answer in answers(sent)] == [-1, -1, 0, -1, -1, -1, -1]


@pytest.mark.parametrize("version", VERSIONS)
def test_error_messages_are_sent_from_version_8_on(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", configs={"max.message.bytes": "100"})
    (answer,) = answers(send(harness, version, {"orders": {0: batch(b"x" * 200)}}))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    if version >= 8:
        assert "max.message.bytes" in answer.error_message


@pytest.mark.parametrize("records", [None, b"", b"\0" * 60])
def test_a_partition_without_a_batch_is_refused(harness: ApiHarness, records: Records) -> None:
    harness.make_topic("orders")
    assert codes(send(harness, topics={"orders": {0: records}})) == [ErrorCode.INVALID_RECORD]


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_message_formats_are_refused(harness: ApiHarness, magic: int) -> None:
    harness.make_topic("orders")
    other = batch()
    other[16] = magic
    (answer,) = answers(send(harness, topics={"orders": {0: other}}))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert str(magic) in answer.error_message


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_clients_may_not_produce_to_internal_topics(harness: ApiHarness, topic: str) -> None:
    harness.make_topic(topic)
    assert codes(send(harness, topics={topic: {0: batch()}})) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert end_of(harness, TopicPartition(topic, 0)) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_is_rejected_before_produce_v7(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    sent = send(harness, version, {"orders": {0: batch(b"v", codec=Codec.ZSTD)}})
    expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE
    assert codes(sent) == [expected]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_stored_unchanged(harness: ApiHarness, codec: Codec) -> None:
    harness.make_topic("orders")
    assert codes(send(harness, topics={"orders": {0: batch(b"v" * 100, codec=codec)}})) == [
        ErrorCode.NONE
    ]


def test_control_batches_of_clients_are_refused(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    forged = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, control=True)
    assert codes(send(harness, topics={"orders": {0: forged}})) == [ErrorCode.INVALID_RECORD]


def test_a_record_without_key_is_refused_by_a_compacted_topic(harness: ApiHarness) -> None:
    harness.make_topic("orders", configs={"cleanup.policy": "compact"})
    keyless = build_batch([Record(0, NOW_MS, None, b"v")])
    (answer,) = answers(send(harness, topics={"orders": {0: keyless}}))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "key" in answer.error_message


def test_malformed_requests_raise(harness: ApiHarness) -> None:
    harness.make_topic("orders", 1)
    twice = [{"index": 0, "records": batch()}, {"index": 0, "records": batch()}]
    with pytest.raises(MalformedRequest, match="occurs twice"):
        harness.send(KEY, 9, acks=1, topic_data=[{"name": "orders", "partition_data": twice}])
    assert end_of(harness) == 0


def test_an_empty_request_gets_an_empty_response(harness: ApiHarness) -> None:
    assert harness.ask(KEY, 9, acks=-1, topic_data=[]).responses == ()


# -- idempotence and transactions ----------------------------------------------------------


def test_a_duplicate_batch_gets_the_original_offset(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    first = send(harness, topics={"orders": {0: numbered(0)}})
    again = send(harness, topics={"orders": {0: numbered(0)}})
    assert answers(first) == answers(again)
    assert end_of(harness) == 1


def test_a_gap_in_a_producers_sequence_is_refused(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    send(harness, topics={"orders": {0: numbered(0)}})
    assert codes(send(harness, topics={"orders": {0: numbered(3)}})) == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ]


def numbered(sequence: int) -> bytearray:
    return batch(b"v", producer_id=5, producer_epoch=0, base_sequence=sequence)


def test_an_unknown_producer_must_start_at_sequence_0(harness: ApiHarness) -> None:
    """The response has the log start offset.

    Without it, Java's producer retries the batch until it expires.
    """
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"), batch(b"b"))
    harness.replicas.delete_records(P0, Offset(1))
    (answer,) = answers(send(harness, topics={"orders": {0: numbered(3)}}))
    assert get_error(answer.error_code) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert answer.log_start_offset == 1
    assert codes(send(harness, topics={"orders": {0: numbered(0)}})) == [ErrorCode.NONE]


def transactional() -> bytearray:
    return batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)


@pytest.mark.parametrize("transactional_id", [None, "theirs"])
def test_transactional_batches_require_permission_on_their_transactional_id(
    harness: ApiHarness, transactional_id: str | None
) -> None:
    """CVE-2018-17196: also if the request names no transactional id."""
    harness.make_topic("orders", 2)
    harness.guard.deny(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "theirs")
    sent = send(
        harness,
        topics={"orders": {0: batch(), 1: transactional()}},
        transactional_id=transactional_id,
    )
    assert codes(sent) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert end_of(harness) == 0


# -- leadership ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_current_leader_is_sent_from_version_10_on(harness: ApiHarness, version: int) -> None:
    harness.update_metadata(
        topic_state("orders", epoch=6, replicas=(OTHER,), leader=OTHER),
        brokers=(node(ME), node(OTHER)),
    )
    sent = send(harness, version)
    (answer,) = answers(sent)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        leader = answer.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (OTHER, 6)
        assert [
            (endpoint.node_id, endpoint.host, endpoint.port)
            for endpoint in sent.reply.node_endpoints
        ] == [(OTHER, "host-2", 9002)]


def test_log_append_time_is_returned(harness: ApiHarness) -> None:
    harness.make_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    (answer,) = answers(send(harness))
    assert answer.log_append_time == as_time(NOW_MS)


def test_denied_and_absent_topics_look_the_same(harness: ApiHarness) -> None:
    harness.guard.denies_all = True
    harness.make_topic("orders")
    topics: dict[str, dict[int, Records]] = {"orders": {0: batch()}, "absent": {0: None}}
    assert codes(send(harness, topics=topics)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


def test_a_synchronous_write_is_acknowledged_after_its_flush(tmp_path: Path) -> None:
    harness = ApiHarness(tmp_path)
    harness.make_topic("orders", configs={"flush.messages": "1"})
    sent = send(harness, acks=1, connection=FakeConnection())
    assert codes(sent) == [ErrorCode.NONE]
    assert harness.replicas.get(P0).log.durable_offset == 2
    harness.close()
