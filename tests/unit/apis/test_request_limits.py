"""Large requests that clients honestly send pass all limits; what is in flight is counted."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.profile import is_long
from tests.unit.apis.harness import ApiHarness, FakeConnection, Sent, build, topic_id_of

from penstock.apis.registry import APIS
from penstock.coordinators.group.requests import JoinGroup, SyncGroup
from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode
from penstock.network.receive_memory import ReceiveMemory
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.malformed import RequestOverLimit
from penstock.protocol.messages import decode_request, encode
from penstock.protocol.produce_request import read_produce_request
from penstock.protocol.request_budget import MAX_TAGGED_FIELDS, RequestBudget
from penstock.protocol.schemas import get_request_schema

MANY = 10_000
KIB = 1024
Topics = Callable[..., list[dict[str, Any]]]


def one_topic(**fields: Any) -> list[dict[str, Any]]:
    return [topic("orders", [partition(number, fields) for number in range(MANY)])]


def many_topics(**fields: Any) -> list[dict[str, Any]]:
    """One partition in each topic: twice as many elements, and names."""
    return [topic(f"orders-{number}", [partition(0, fields)]) for number in range(MANY)]


def topic(name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    indexes = [entry["partition_index"] for entry in partitions]
    return {
        "name": name,
        "topic": name,
        "topic_id": topic_id_of(name),
        "partitions": partitions,
        "partition_indexes": indexes,
    }


def partition(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {"partition": number, "partition_index": number, **fields}


def ask(harness: ApiHarness, key: ApiKey, version: int, **values: Any) -> Any:
    """Ask as the network does: the size of a frame is checked before it is received."""
    message = build(get_request_schema(key, version), values)
    frame = bytearray(encode_request_frame(message, correlation_id=1, client_id="test")[4:])
    harness.dispatcher.check_frame(harness.connection.caller, key, len(frame))
    return Sent(harness.send_frame(frame), key, version, 1).reply


def codes_of(topics: Any) -> list[ErrorCode]:
    return [entry.error_code for topic in topics for entry in topic.partitions]


# The shorter form has the newest versions, and the shape with more elements.
SHAPES = pytest.mark.parametrize("topics", [one_topic, many_topics] if is_long() else [many_topics])


def versions(oldest: int, newest: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", [oldest, newest] if is_long() else [newest])


@SHAPES
@versions(4, APIS[ApiKey.FETCH].versions[-1])
def test_a_fetch_may_name_ten_thousand_partitions(
    harness: ApiHarness, version: int, topics: Topics
) -> None:
    named = topics(fetch_offset=0, partition_max_bytes=1000)
    reply = ask(harness, ApiKey.FETCH, version, max_wait=timedelta(), topics=named)
    assert len(codes_of(reply.responses)) == MANY


@SHAPES
@versions(2, 9)
def test_an_offset_commit_may_name_ten_thousand_partitions(
    harness: ApiHarness, version: int, topics: Topics
) -> None:
    named = topics(committed_offset=7, committed_metadata="x" * 20)
    reply = ask(harness, ApiKey.OFFSET_COMMIT, version, group_id="g", topics=named)
    assert len(codes_of(reply.topics)) == MANY


@SHAPES
@versions(1, 8)
def test_an_offset_fetch_may_name_ten_thousand_partitions(
    harness: ApiHarness, version: int, topics: Topics
) -> None:
    groups = [{"group_id": "g", "topics": topics()}]
    fields = {"group_id": "g", "topics": topics(), "groups": groups}
    reply = ask(harness, ApiKey.OFFSET_FETCH, version, **fields)
    replied = reply.groups[0].topics if version >= 8 else reply.topics
    assert len(codes_of(replied)) == MANY


@SHAPES
@versions(0, 5)
def test_a_txn_offset_commit_may_name_ten_thousand_partitions(
    harness: ApiHarness, version: int, topics: Topics
) -> None:
    harness.make_topic(OFFSETS_TOPIC)
    reply = ask(
        harness,
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id="t",
        group_id="g",
        topics=topics(committed_offset=7, committed_metadata="x" * 20),
    )
    assert len(codes_of(reply.topics)) == MANY


def test_create_topics_may_name_ten_thousand_topics(harness: ApiHarness) -> None:
    harness.controller.is_slow = True  # creates no logs
    topics = [
        {
            "name": f"orders-{number}",
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": "1000"}],
        }
        for number in range(MANY)
    ]
    reply = ask(harness, ApiKey.CREATE_TOPICS, 5, topics=topics)
    assert [topic.error_code for topic in reply.topics] == [ErrorCode.NONE] * MANY


@versions(1, 12)
def test_metadata_may_name_ten_thousand_topics(harness: ApiHarness, version: int) -> None:
    topics = [{"name": f"orders-{number}", "topic_id": None} for number in range(MANY)]
    fields = {"topics": topics, "allow_auto_topic_creation": False}
    harness.set_settings({"auto.create.topics.enable": "false"})
    reply = ask(harness, ApiKey.METADATA, version, **fields)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.error_code for topic in reply.topics] == [unknown] * MANY


@versions(0, 5)
def test_a_sync_group_may_assign_16_kib_to_a_thousand_members(
    harness: ApiHarness, version: int
) -> None:
    assignments = [
        {"member_id": f"member-{number:036}", "assignment": bytes(16 * KIB)}
        for number in range(1000)
    ]
    fields = {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"}
    reply = ask(harness, ApiKey.SYNC_GROUP, version, **fields, assignments=assignments)
    assert reply.error_code == ErrorCode.NONE
    (synced,) = harness.groups.requests
    assert isinstance(synced, SyncGroup)
    assert len(synced.assignments) == 1000


@versions(0, 9)
def test_the_metadata_of_a_join_group_may_have_a_mebibyte(
    harness: ApiHarness, version: int
) -> None:
    protocols = [{"name": "range", "metadata": bytes(KIB * KIB)}]
    reply = ask(harness, ApiKey.JOIN_GROUP, version, group_id="g", protocols=protocols)
    assert reply.error_code == ErrorCode.NONE
    (joined,) = harness.groups.requests
    assert isinstance(joined, JoinGroup)


# -- APIs that take longer for an element -------------------------------------------------------


def settings(count: int) -> dict[str, Any]:
    """So many topics with a setting each."""
    setting = {"name": "retention.ms", "value": "1000", "config_operation": 0}
    return {
        "resources": [
            {"resource_type": 2, "resource_name": f"orders-{number}", "configs": [setting]}
            for number in range(count)
        ]
    }


def markers(count: int) -> dict[str, Any]:
    """So many transactions of ten topics with a partition each."""
    topics = [{"name": f"orders-{number}", "partition_indexes": (0,)} for number in range(10)]
    return {"markers": [{"producer_id": number, "topics": topics} for number in range(count)]}


def keys(count: int) -> dict[str, Any]:
    return {"coordinator_keys": tuple(f"group-{number}" for number in range(count))}


def single_partitions(count: int) -> dict[str, Any]:
    return {"topics": [topic(f"orders-{number}", [partition(0, {})]) for number in range(count)]}


def partitions_of_a_topic(count: int) -> dict[str, Any]:
    return {"topics": [topic("orders", [partition(number, {}) for number in range(count)])]}


def names(count: int) -> dict[str, Any]:
    return {"topics": [{"name": f"orders-{number}"} for number in range(count)]}


@pytest.mark.parametrize(
    ("key", "version", "fields", "count"),
    [
        (ApiKey.FIND_COORDINATOR, 4, keys, 10_000),
        (ApiKey.ALTER_CONFIGS, 2, settings, 5000),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, settings, 5000),
        (ApiKey.WRITE_TXN_MARKERS, 1, markers, 1000),
        (ApiKey.METADATA, 9, names, 15_000),
        (ApiKey.OFFSET_FETCH, 7, single_partitions, 11_000),
        (ApiKey.LIST_OFFSETS, 1, single_partitions, 10_500),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, single_partitions, 10_500),
        (ApiKey.DESCRIBE_PRODUCERS, 0, partitions_of_a_topic, 19_000),
    ],
)
def test_what_takes_longer_for_an_element_may_have_fewer(
    harness: ApiHarness,
    key: ApiKey,
    version: int,
    fields: Callable[[int], dict[str, Any]],
    count: int,
) -> None:
    schema = get_request_schema(key, version)
    config = harness.services.config()

    def decode(number: int) -> RequestBudget:
        budget = APIS[key].new_budget(config)
        decode_request(key, version, encode(build(schema, fields(number))), budget)
        return budget

    assert decode(count).elements < config.max_request_elements // 10
    with pytest.raises(RequestOverLimit):
        decode(count * 5 // 4)


@versions(3, 9)
def test_a_produce_too_small_to_be_counted_is_within_the_default_limits(
    harness: ApiHarness, version: int
) -> None:
    api = APIS[ApiKey.PRODUCE]
    schema = get_request_schema(ApiKey.PRODUCE, version)
    least_bytes = len(encode(build(schema, {"topic_data": [{"name": ""}] * 2})))
    least_bytes -= len(encode(build(schema, {"topic_data": [{"name": ""}]})))
    topics = [{"name": ""}] * (api.uncounted_bytes // least_bytes)
    body = encode(build(schema, {"topic_data": topics}))
    assert abs(len(body) - api.uncounted_bytes) < KIB
    read_produce_request(memoryview(body), version, api.new_budget(harness.services.config()))
    assert api.uncounted_bytes // 2 <= MAX_TAGGED_FIELDS  # of two bytes at least


# -- memory of requests in flight ---------------------------------------------------------------


def connection_with(memory: ReceiveMemory) -> FakeConnection:
    connection = FakeConnection()
    connection.memory = memory
    return connection


def test_a_decoded_request_counts_until_it_is_answered(harness: ApiHarness) -> None:
    memory = ReceiveMemory(total_bytes=100_000_000, max_request_bytes=1_000_000)
    connection = connection_with(memory)
    harness.runs_at_once = False
    protocols = [{"name": "range", "metadata": bytes(KIB * KIB)}]
    harness.send(ApiKey.JOIN_GROUP, 9, connection=connection, group_id="g", protocols=protocols)
    assert memory.held_bytes > KIB * KIB
    harness.send(ApiKey.HEARTBEAT, 4, connection=connection, group_id="g")
    connection.close("gone")
    assert memory.held_bytes > KIB * KIB, "the handler still has it"
    harness.run_tasks()
    assert memory.held_bytes == 0


def test_without_memory_a_decoded_request_closes_its_connection(harness: ApiHarness) -> None:
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=1_000_000)
    harness.runs_at_once = False
    connections = [connection_with(memory) for _ in range(4)]
    protocols = [{"name": "range", "metadata": bytes(KIB * KIB)}]
    fields: dict[str, Any] = {"group_id": "g", "protocols": protocols}
    harness.send(ApiKey.JOIN_GROUP, 9, connection=connections[0], **fields)
    for connection in connections[1:]:
        with pytest.raises(RequestOverLimit, match="JoinGroup v9 of client test: other requests"):
            harness.send(ApiKey.JOIN_GROUP, 9, connection=connection, **fields)
    harness.run_tasks()
    assert memory.held_bytes == 0


def test_fetches_that_wait_count_and_without_memory_they_are_answered(harness: ApiHarness) -> None:
    memory = ReceiveMemory(total_bytes=0, max_request_bytes=1_000_000)  # the least it can be
    harness.make_topic("orders", 100)
    entries = [partition(number, {"partition_max_bytes": 1000}) for number in range(100)]
    fields: dict[str, Any] = {
        "max_wait": timedelta(seconds=1),
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [topic("orders", entries)],
    }
    connections = [connection_with(memory) for _ in range(8)]  # of one address: half of it at most
    sent = [
        harness.send(ApiKey.FETCH, 4, connection=connection, **fields) for connection in connections
    ]
    assert [fetch.is_answered for fetch in sent] == [False] * 3 + [True] * 5
    assert memory.held_bytes > 3 * 100 * 100
    connections[0].close("gone")
    later = connection_with(memory)
    assert not harness.send(ApiKey.FETCH, 4, connection=later, **fields).is_answered
    harness.clock.advance_ms(1000)
    assert all(fetch.is_answered for fetch in sent[1:])
    assert memory.held_bytes == 0
