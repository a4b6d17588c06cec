"""Invalid record batches get their error code for their partition only, and are not stored."""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_jars import KafkaUnavailableError, resolve_kafka_jars
from tests.profile import is_long
from tests.scenarios.batch_cases import (
    COMPACTED,
    PLAIN,
    RECOMPRESSED,
    TOPICS,
    Case,
    all_cases,
    bombs,
    changed,
    good,
    with_payload,
)
from tests.scenarios.raw_client import RawClient, request_frame
from tests.scenarios.watched_broker import MIB, WatchedBroker

from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec, compress
from penstock.protocol.varint import encode_varint

pytestmark = pytest.mark.xdist_group("bad-batches")

NOW_MS = time.time_ns() // 1_000_000
CASES = all_cases(NOW_MS)
OLDEST, NEWEST = 3, 11


@pytest.fixture(scope="module", autouse=True)
def _topics(watched: WatchedBroker) -> None:
    for name, configs in TOPICS.items():
        watched.create_topic(name, partitions=3, config=configs)


@pytest.fixture
def client(broker: WatchedBroker) -> Iterator[RawClient]:
    with broker.connect() as client:
        assert client.is_served()  # within the time limit, however long the batches take to build
        yield client


def produce(client: RawClient, topic: str, *batches: bytes | None, version: int = NEWEST) -> Any:
    """Produces one batch per partition; returns the results in their order."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    response = client.ask(
        ApiKey.PRODUCE,
        version,
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=[{"name": topic, "partition_data": data}],
    )
    return response.responses[0].partition_responses


def end_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    requested = {"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}
    response = client.ask(
        ApiKey.LIST_OFFSETS, 5, topics=[{"name": topic, "partitions": [requested]}], replica_id=-1
    )
    return int(response.topics[0].partitions[0].offset)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_batch_gets_its_error_code_and_an_invalid_one_is_not_stored(
    client: RawClient, case: Case
) -> None:
    before = end_offset(client, case.topic)
    (result,) = produce(client, case.topic, case.records)
    assert result.error_code == case.expected, result.error_message
    if case.expected is ErrorCode.NONE:
        assert result.base_offset == before
        assert end_offset(client, case.topic) > before
    else:
        assert (result.base_offset, end_offset(client, case.topic)) == (-1, before)
        assert result.error_message or result.error_code == 53  # code 53 needs no message


def test_the_valid_batches_of_a_request_are_stored(client: RawClient) -> None:
    """This holds in every version, however many batches are invalid."""
    for version in range(OLDEST, NEWEST + 1):
        for case in CASES[::9]:
            before = end_offset(client, PLAIN, 1)
            results = produce(
                client, PLAIN, case.records, good(NOW_MS), b"\0" * 61, version=version
            )
            assert results[1].error_code == ErrorCode.NONE
            assert results[2].error_code != ErrorCode.NONE
            assert end_offset(client, PLAIN, 1) == before + 2


def test_with_acks_0_an_invalid_batch_closes_the_connection(broker: WatchedBroker) -> None:
    for case in CASES:
        with broker.connect() as client:
            client.send(acks_0_frame(case))
            if case.expected is ErrorCode.NONE:
                assert client.is_served(), case.name
            else:
                assert client.is_cut_off(), case.name


def acks_0_frame(case: Case) -> bytes:
    data = [{"index": 0, "records": case.records}]
    return request_frame(
        ApiKey.PRODUCE, 9, acks=0, topic_data=[{"name": case.topic, "partition_data": data}]
    )


def test_the_leader_assigns_offset_and_leader_epoch(client: RawClient) -> None:
    for base_offset, leader_epoch in ((5, 0), (-1, 99), (2**63 - 1, -7), (-(2**63), 2**31 - 1)):
        before = end_offset(client, PLAIN)
        forged = changed(good(NOW_MS), base_offset=base_offset, leader_epoch=leader_epoch)
        (result,) = produce(client, PLAIN, forged)
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, before)
        header = read_header(fetch(client, PLAIN, before))
        assert (header.base_offset, header.leader_epoch) == (before, 0)


def fetch(client: RawClient, topic: str, offset: int) -> bytes:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": MIB}
    response = client.ask(
        ApiKey.FETCH,
        11,
        max_bytes=MIB,
        session_epoch=-1,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [{**partition, "current_leader_epoch": -1}]}],
    )
    return bytes(response.responses[0].partitions[0].records)


# -- producers ---------------------------------------------------------------------------------

OK, GAP, FENCED = 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
LAST = 2**31 - 1

# Epoch, first sequence and record count of each batch, and the expected error code.
SEQUENCES: dict[str, list[tuple[tuple[int, int, int], int]]] = {
    "a batch that comes again": [((0, 0, 1), OK), ((0, 0, 1), OK), ((0, 1, 1), OK)],
    "a gap": [((0, 0, 1), OK), ((0, 2, 1), GAP), ((0, 1, 1), OK)],
    "parts of batches": [((0, 0, 3), OK), ((0, 1, 1), GAP), ((0, 2, 2), GAP), ((0, 3, 1), OK)],
    "a new epoch from the middle": [((0, 0, 1), OK), ((1, 5, 1), GAP)],
    "an old epoch": [((0, 0, 1), OK), ((1, 0, 1), OK), ((0, 1, 1), FENCED)],
    # Kafka accepts it; then a lost first batch would be lost for good (KAFKA-14359).
    "a first batch that is none": [((0, 5, 1), UNKNOWN), ((0, 0, 1), OK)],
    "the largest epoch": [((32767, 0, 1), OK), ((32766, 1, 1), FENCED)],
    "the largest sequence, out of nowhere": [((0, LAST, 1), UNKNOWN)],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_idempotent_batches_are_accepted_in_sequence_only(client: RawClient, name: str) -> None:
    producer_id = client.ask(ApiKey.INIT_PRODUCER_ID, 0).producer_id
    stored = end_offset(client, PLAIN)
    seen: dict[tuple[int, int, int], int] = {}
    for (epoch, sequence, count), expected in SEQUENCES[name]:
        batch = good(
            NOW_MS,
            count=count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        (result,) = produce(client, PLAIN, batch)
        assert result.error_code == expected, result.error_message
        if expected == OK:
            base_offset = seen.setdefault((epoch, sequence, count), stored)
            assert result.base_offset == base_offset
            stored += count if base_offset == stored else 0
        assert end_offset(client, PLAIN) == stored


# -- bombs -------------------------------------------------------------------------------------

BOMBS = bombs(NOW_MS)


def test_decompression_bombs_take_bounded_memory_and_are_rejected(
    client: RawClient, broker: WatchedBroker
) -> None:
    for topic in (PLAIN, COMPACTED, RECOMPRESSED):
        before = end_offset(client, topic)
        for name, bomb in BOMBS:
            assert len(bomb) < MIB, name
            with broker.growing_less_than(80 * MIB):
                (result,) = produce(client, topic, bomb)
            assert result.error_code == ErrorCode.INVALID_RECORD, (name, result)
            assert result.error_message.startswith(f"{topic}-0: ")
        assert end_offset(client, topic) == before


def test_decompression_bombs_are_not_decompressed_without_need(
    client: RawClient, broker: WatchedBroker
) -> None:
    """They are stored as sent; consumers must limit what they decompress."""
    create_topics(broker.servers, {"unchecked": {"penstock.validate.records": "false"}})
    for _, bomb in BOMBS:
        with broker.growing_less_than(20 * MIB):
            (result,) = produce(client, "unchecked", bomb)
        assert result.error_code == ErrorCode.NONE


def test_many_small_records_in_a_small_batch_are_accepted(client: RawClient) -> None:
    count = 50_000
    bodies = (b"\0\0" + encode_varint(offset_delta) + b"\2k\1\0" for offset_delta in range(count))
    payload = b"".join(encode_varint(len(body)) + body for body in bodies)
    batch = with_payload(Codec.ZSTD, compress(Codec.ZSTD, payload), count=count, now_ms=NOW_MS)
    for topic in (PLAIN, COMPACTED, RECOMPRESSED):
        before = end_offset(client, topic)
        (result,) = produce(client, topic, batch)
        assert result.error_code == ErrorCode.NONE, result.error_message
        assert end_offset(client, topic) == before + count


# -- the same on Kafka -------------------------------------------------------------------------


@pytest.mark.xdist_group("kafka")
@pytest.mark.skipif(not is_long(), reason="starts Apache Kafka")
def test_kafka_returns_the_codes_of_the_table(tmp_path: Path) -> None:
    try:
        jars = resolve_kafka_jars(print)
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    with KafkaBroker(jars, tmp_path, {}) as kafka:
        create_topics(kafka.bootstrap)
        with RawClient(kafka.bootstrap) as client:
            for topic in TOPICS:
                wait_until_led(client, topic)
            results = {
                case.name: produce(client, case.topic, case.records)[0].error_code
                for case in CASES
                if case.kafka is not None
            }
    assert results == {case.name: case.kafka for case in CASES if case.kafka is not None}


def wait_until_led(client: RawClient, topic: str) -> None:
    """KRaft responds, and names a leader, before that broker leads."""
    deadline = time.monotonic() + 180
    while end_offset(client, topic) < 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create_topics(servers: str, wanted: Mapping[str, Mapping[str, object]] = TOPICS) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [
        NewTopic(name, 1, 1, config={key: str(value) for key, value in configs.items()})
        for name, configs in wanted.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result()
