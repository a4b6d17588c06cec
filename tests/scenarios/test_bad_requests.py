"""Well-formed requests with invalid values or excessive sizes.

The expected codes are those of Apache Kafka 4.3, unless a comment says otherwise.
"""

import struct
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.scenarios.batch_cases import good
from tests.scenarios.raw_client import RawClient, framed, request_frame
from tests.scenarios.watched_broker import MIB, TOPIC, WatchedBroker

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.headers import encode_request_header
from penstock.protocol.request_budget import MAX_ELEMENTS, STRUCT_ELEMENTS

pytestmark = pytest.mark.xdist_group("bad-requests")

NOW_MS = time.time_ns() // 1_000_000
MIN32, MAX32, MIN64, MAX64 = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
FOR_EVER = timedelta(milliseconds=MAX32)
NOTHING = ErrorCode.NONE
RECORDS = 6  # number of records in the topic, in batches of two


@pytest.fixture(scope="module")
def topic(watched: WatchedBroker) -> str:
    watched.create_topic("plain")
    with watched.connect() as client:
        for _ in range(RECORDS // 2):
            assert produce(client, "plain") == NOTHING
    return "plain"


@pytest.fixture
def client(broker: WatchedBroker, topic: str) -> Iterator[RawClient]:
    """A client that must still be served after the test, with an unchanged topic."""
    with broker.connect() as client:
        assert client.is_served()  # within the time limit, however long a request takes to build
        yield client
        assert list_offsets(client) == (NOTHING, RECORDS)


# -- valid requests, except for the arguments --------------------------------------------------


def produce(client: RawClient, topic: str, index: int = 0, **fields: Any) -> int:
    data = [{"index": index, "records": good(NOW_MS)}]
    values = {"acks": -1, "timeout": timedelta(seconds=30), **fields}
    response = client.ask(
        ApiKey.PRODUCE, 9, topic_data=[{"name": topic, "partition_data": data}], **values
    )
    return int(response.responses[0].partition_responses[0].error_code)


PARTITION = {
    "partition": 0,
    "fetch_offset": 0,
    "partition_max_bytes": MIB,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
}


def fetch_values(*partitions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": timedelta(),
        "min_bytes": 1,
        "max_bytes": MIB,
        "session_epoch": -1,
        "topics": [{"topic": "plain", "partitions": partitions or [PARTITION]}],
        **fields,
    }


def fetch(client: RawClient, *partitions: dict[str, Any], **fields: Any) -> tuple[int, int]:
    """The error code of the response or its first partition, and the size of the records."""
    response = client.ask(ApiKey.FETCH, 12, **fetch_values(*partitions, **fields))
    if not response.responses:
        return int(response.error_code), 0
    first = response.responses[0].partitions[0]
    return int(first.error_code), len(first.records or b"")


def list_offsets(client: RawClient, version: int = 8, **fields: Any) -> tuple[int, int]:
    top = {name: fields.pop(name) for name in ("replica_id",) if name in fields}
    requested = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1, **fields}
    topics = [{"name": "plain", "partitions": [requested]}]
    values: dict[str, Any] = {"replica_id": -1, "topics": topics, **top}
    result = client.ask(ApiKey.LIST_OFFSETS, version, **values).topics[0].partitions[0]
    return int(result.error_code), int(result.offset)


def epoch_end(client: RawClient, **fields: Any) -> tuple[int, int, int]:
    top = {"replica_id": fields.pop("replica_id", -1)}
    requested = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0, **fields}
    response = client.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        topics=[{"topic": "plain", "partitions": [requested]}],
        **top,
    )
    result = response.topics[0].partitions[0]
    return int(result.error_code), int(result.leader_epoch), int(result.end_offset)


# -- Fetch -------------------------------------------------------------------------------------

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
ABSENT = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
AHEAD = ErrorCode.UNKNOWN_LEADER_EPOCH

FETCHES: list[tuple[dict[str, Any], int]] = [
    *(({"fetch_offset": offset}, OUT_OF_RANGE) for offset in (-1, -2, MIN64, MAX64, RECORDS + 1)),
    *(({"partition": index}, ABSENT) for index in (-1, 1, MIN32, MAX32)),
    *(({"current_leader_epoch": epoch}, AHEAD) for epoch in (1, 99, MAX32)),
    *(({"current_leader_epoch": epoch}, NOTHING) for epoch in (-2, MIN32, 0)),
    *(({"last_fetched_epoch": epoch}, OUT_OF_RANGE) for epoch in (5, MAX32)),
    *(({"last_fetched_epoch": epoch}, NOTHING) for epoch in (-2, MIN32, 0)),
    *(({"log_start_offset": offset}, NOTHING) for offset in (MIN64, MAX64)),
    # Kafka fails on negative sizes.
    *(({"partition_max_bytes": size}, NOTHING) for size in (0, -1, MIN32, MAX32)),
]


@pytest.mark.parametrize("wait", [timedelta(), FOR_EVER], ids=["now", "for ever"])
@pytest.mark.parametrize(("fields", "code"), FETCHES, ids=[str(fields) for fields, _ in FETCHES])
def test_a_fetch_of_an_unknown_partition_or_offset_responds_at_once(
    client: RawClient, fields: dict[str, Any], code: int, wait: timedelta
) -> None:
    error, size = fetch(client, {**PARTITION, **fields}, max_wait=wait)
    assert error == code
    assert bool(size) == (code == NOTHING)


SESSIONS = [(12345, 1), (0, 5), (0, -2), (MIN32, MAX32), (MAX32, 1)]
LIMITS: list[tuple[dict[str, Any], int]] = [
    *(({"max_bytes": size}, NOTHING) for size in (0, -1, MIN32, MAX32)),
    *(
        ({"min_bytes": size, "max_bytes": 10, "max_wait": FOR_EVER}, NOTHING)
        for size in (11, MAX32)
    ),
    *(({"min_bytes": size, "max_wait": FOR_EVER}, NOTHING) for size in (0, -1, MIN32)),
    ({"min_bytes": MAX32, "max_bytes": MAX32, "max_wait": timedelta(milliseconds=50)}, NOTHING),
    *(({"max_wait": timedelta(milliseconds=wait)}, NOTHING) for wait in (-1, MIN32)),
    # Kafka fails on unknown isolation levels.
    *(({"isolation_level": level}, NOTHING) for level in (1, 7, -1)),
    *(
        ({"session_id": number, "session_epoch": epoch}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        for number, epoch in SESSIONS
    ),
    ({"session_id": -5, "session_epoch": 0}, NOTHING),
]


@pytest.mark.parametrize(("fields", "code"), LIMITS, ids=[str(fields) for fields, _ in LIMITS])
def test_invalid_limits_do_not_delay_a_fetch(
    client: RawClient, fields: dict[str, Any], code: int
) -> None:
    error, size = fetch(client, **fields)
    assert error == code
    assert bool(size) == (code == NOTHING)


@pytest.mark.parametrize("replica_id", [0, 1, 7, MAX32])
@pytest.mark.parametrize("version", [4, 11, 12, 15, 16])
def test_a_client_cannot_pose_as_a_follower(
    client: RawClient, replica_id: int, version: int
) -> None:
    """CVE-2018-1288: a follower's fetch offset moves the high watermark."""
    values = fetch_values(
        {**PARTITION, "fetch_offset": MAX64}, replica_id=replica_id, max_wait=FOR_EVER
    )
    values["replica_state"] = {"replica_id": replica_id, "replica_epoch": -1}
    if version >= 13:
        metadata = client.ask(ApiKey.METADATA, 12, topics=[{"name": "plain"}])
        values["topics"][0]["topic_id"] = metadata.topics[0].topic_id
    response = client.ask(ApiKey.FETCH, version, **values)
    (result,) = response.responses[0].partitions
    assert (
        result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )  # as Kafka responds to a client that is no broker
    assert not result.records
    assert result.high_watermark == -1


@pytest.mark.parametrize("replica_id", [-2, -3, MIN32])
def test_negative_replica_ids_are_consumers(client: RawClient, replica_id: int) -> None:
    code, size = fetch(client, replica_id=replica_id)
    assert (code, size > 0) == (NOTHING, True)


def test_of_a_partition_named_twice_the_last_entry_counts(client: RawClient) -> None:
    twice = [PARTITION, {**PARTITION, "fetch_offset": 4}]
    for topics in (
        [{"topic": "plain", "partitions": twice}],
        [{"topic": "plain", "partitions": [partition]} for partition in twice],
    ):
        response = client.ask(ApiKey.FETCH, 12, **fetch_values(topics=topics))
        ((result,),) = [topic.partitions for topic in response.responses]
        assert len(result.records) == len(good(NOW_MS))


NAMES = ["nope", "", "../x", "a\0b", "x" * 250, "plain\n", "Plain", "__consumer_offsets2"]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_topic_name_is_rejected(client: RawClient, name: str) -> None:
    assert fetch(client, topics=[{"topic": name, "partitions": [PARTITION]}])[0] == ABSENT
    response = client.ask(
        ApiKey.LIST_OFFSETS, 8, topics=[{"name": name, "partitions": [{"partition_index": 0}]}]
    )
    assert response.topics[0].partitions[0].error_code == ABSENT
    assert produce(client, name) == ABSENT


def test_an_unknown_topic_id_is_rejected(client: RawClient) -> None:
    for version in range(13, APIS[ApiKey.FETCH].versions[-1] + 1):
        for topic_id in (None, UUID(int=1), UUID(int=2**128 - 1)):
            topics = [{"topic_id": topic_id, "partitions": [PARTITION]}]
            values = fetch_values(topics=topics, replica_state={"replica_id": -1})
            response = client.ask(ApiKey.FETCH, version, **values)
            assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- ListOffsets and OffsetForLeaderEpoch ------------------------------------------------------

TIMES = {
    -1: (NOTHING, RECORDS),
    -2: (NOTHING, 0),
    -3: (NOTHING, 0),
    -4: (NOTHING, 0),
    -5: (ErrorCode.UNSUPPORTED_VERSION, -1),
    -100: (ErrorCode.UNSUPPORTED_VERSION, -1),
    MIN64: (ErrorCode.UNSUPPORTED_VERSION, -1),
    0: (NOTHING, 0),
    MAX64: (NOTHING, -1),
}


@pytest.mark.parametrize("timestamp", TIMES)
def test_list_offsets_before_and_after_all_records(client: RawClient, timestamp: int) -> None:
    assert list_offsets(client, timestamp=timestamp) == TIMES[timestamp]


def test_list_offsets_of_unknown_partitions(client: RawClient) -> None:
    for index in (-1, 1, MIN32, MAX32):
        assert list_offsets(client, partition_index=index) == (ABSENT, -1)
    for epoch in (1, MAX32):
        assert list_offsets(client, current_leader_epoch=epoch) == (AHEAD, -1)
    for replica_id in (-2, 0, 7):
        assert list_offsets(client, replica_id=replica_id) == (NOTHING, RECORDS)
    for timestamp in (-3, -4):
        code, _ = list_offsets(client, version=3, timestamp=timestamp)
        assert code == ErrorCode.UNSUPPORTED_VERSION


def test_list_offsets_of_a_partition_named_twice_is_rejected(client: RawClient) -> None:
    requested = {"name": "plain", "partitions": [{"partition_index": 0, "timestamp": -1}] * 2}
    response = client.ask(ApiKey.LIST_OFFSETS, 8, topics=[requested], replica_id=-1)
    codes = {partition.error_code for partition in response.topics[0].partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


def test_offset_for_leader_epoch_of_unknown_epochs(client: RawClient) -> None:
    for epoch in (1, MAX32, -1, -2, MIN32):
        assert epoch_end(client, leader_epoch=epoch) == (NOTHING, -1, -1)
    for epoch in (1, MAX32):
        assert epoch_end(client, current_leader_epoch=epoch) == (AHEAD, -1, -1)
    for index in (-1, 1, MAX32):
        assert epoch_end(client, partition=index) == (ABSENT, -1, -1)
    for replica_id in (-3, 5, MAX32):
        assert epoch_end(client, replica_id=replica_id) == (NOTHING, 0, RECORDS)


# -- Produce -----------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [2, 7, -2, 32767, -32768])
def test_invalid_acks_are_rejected(client: RawClient, acks: int) -> None:
    assert produce(client, "plain", acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("index", [-1, 1, MIN32, MAX32])
def test_produce_to_an_unknown_partition_is_rejected(client: RawClient, index: int) -> None:
    assert produce(client, "plain", index) == ABSENT


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_clients_cannot_produce_to_internal_topics(client: RawClient, name: str) -> None:
    for acks in (-1, 1):
        assert produce(client, name, acks=acks) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["nope", "__consumer_offsets"])
def test_with_acks_0_an_error_closes_the_connection(
    client: RawClient, broker: WatchedBroker, name: str
) -> None:
    data = [{"name": name, "partition_data": [{"index": 0, "records": good(NOW_MS)}]}]
    with broker.connect() as other:
        other.send(request_frame(ApiKey.PRODUCE, 9, acks=0, topic_data=data))
        assert other.is_cut_off()


def test_a_produce_that_names_a_partition_twice_closes_the_connection(
    client: RawClient, broker: WatchedBroker
) -> None:
    """Kafka stores one of the two and reports success."""
    data = [{"index": 0, "records": good(NOW_MS)}] * 2
    with broker.connect() as other:
        topics = [{"name": "plain", "partition_data": data}]
        other.send(request_frame(ApiKey.PRODUCE, 9, acks=-1, topic_data=topics))
        assert other.is_cut_off()


# -- excessive sizes ---------------------------------------------------------------------------


def fetch_of_many(count: int, wait_ms: int = 0) -> bytes:
    """A request in version 4, in which a partition takes the fewest bytes."""
    head = encode_request_header(ApiKey.FETCH, 4, 0, "raw")
    fields = struct.pack(">iiiibih5si", -1, wait_ms, 1, MIB, 0, 1, 5, b"plain", count)
    partitions = b"".join(struct.pack(">iqi", index, 0, MIB) for index in range(count))
    return framed(head + fields + partitions)


def test_a_fetch_of_a_hundred_thousand_partitions_is_rejected(
    client: RawClient, broker: WatchedBroker
) -> None:
    with broker.growing_less_than(20 * MIB), broker.connect() as other:
        other.try_send(fetch_of_many(100_000))
        assert other.is_cut_off()
    assert "Fetch v4 of client raw: more than 60000 elements" in broker.logs()


def test_a_fetch_of_the_largest_allowed_size_gets_a_response(
    client: RawClient, broker: WatchedBroker
) -> None:
    count = MAX_ELEMENTS // STRUCT_ELEMENTS - 1  # and one topic
    with broker.growing_less_than(120 * MIB):
        client.send(fetch_of_many(count, wait_ms=MAX32))
        response = client.read_frame()
    assert struct.pack(">h5si", 5, b"plain", count) in response


def test_a_produce_of_too_many_partitions_is_rejected(
    client: RawClient, broker: WatchedBroker
) -> None:
    """The largest frame could name 17 million partitions, which would take gigabytes."""
    partitions = b"".join(struct.pack(">ii", index, -1) for index in range(100_000))
    head = encode_request_header(ApiKey.PRODUCE, 3, 0, "raw")
    fields = struct.pack(">hhiih5si", -1, 1, 1000, 1, 5, b"plain", 100_000)
    with broker.growing_less_than(20 * MIB), broker.connect() as other:
        other.try_send(framed(head + fields + partitions))
        assert other.is_cut_off()


def test_the_number_of_topics_per_request_is_limited(
    client: RawClient, broker: WatchedBroker
) -> None:
    names = [f"many-{number}" for number in range(10_001)]
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": []}
        for name in names
    ]
    with broker.growing_less_than(80 * MIB):
        created = client.ask(ApiKey.CREATE_TOPICS, 4, topics=topics, timeout=FOR_EVER)
        described = client.ask(ApiKey.METADATA, 9, topics=[{"name": name} for name in names])
    for response in (created, described):
        assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}


def test_a_long_name_takes_only_its_own_length(client: RawClient, broker: WatchedBroker) -> None:
    names = [{"name": f"{number}-" + "x" * 32_000} for number in range(30)]
    with broker.growing_less_than(40 * MIB):
        response = client.ask(ApiKey.METADATA, 12, topics=names, allow_auto_topic_creation=True)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_waiting_fetches_complete_when_records_arrive(
    client: RawClient, broker: WatchedBroker
) -> None:
    """A fetch with a huge max_wait waits for the next record and blocks no other request."""
    partition = {**PARTITION, "fetch_offset": 0}
    topics = [{"topic": TOPIC, "partitions": [partition]}]
    values = fetch_values(topics=topics, max_wait=FOR_EVER, min_bytes=200_000)
    with broker.connect() as other:
        other.send(request_frame(ApiKey.FETCH, 12, **values))
        assert client.is_served()
        other.reset()
