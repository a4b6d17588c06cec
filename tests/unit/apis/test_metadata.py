"""Metadata: brokers, leaders, and auto-created topics."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.apis.harness import (
    LISTENER,
    ME,
    OTHER,
    ApiHarness,
    FakeConnection,
    node,
    topic_id_of,
    topic_state,
)

from penstock.apis.cluster.metadata_response import ResponseBroker, TopicEncoder, encode_body
from penstock.apis.registry import APIS
from penstock.apis.response_shapes import response_shape
from penstock.controller.interface import ApiError
from penstock.model.cluster import NO_BROKER, BrokerId, Endpoint, PartitionState, TopicState
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.METADATA
VERSIONS = APIS[KEY].versions
LATEST = VERSIONS[-1]
THIRD = BrokerId(3)
FAILED = TopicPartition("ünïted.1", 204)  # on this broker
NOT_ASKED = -(2**31)


def ask(harness: ApiHarness, version: int, *names: str, **values: Any) -> Any:
    return harness.ask(KEY, version, topics=[{"name": name} for name in names], **values)


def only(reply: Any) -> Any:
    (topic,) = reply.topics
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_returns_brokers_and_leaders(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 3, epoch=4)
    reply = ask(harness, version, "orders")
    topic = only(reply)
    assert (topic.error_code, topic.name) == (0, "orders")
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    assert {partition.leader_id for partition in topic.partitions} == {ME}
    assert {(partition.replica_nodes, partition.isr_nodes) for partition in topic.partitions} == {
        ((ME,), (ME,))
    }
    assert [(broker.node_id, broker.host, broker.port) for broker in reply.brokers] == [
        (ME, "127.0.0.1", 9092)
    ]
    if version >= 1:
        assert (reply.controller_id, topic.is_internal, reply.brokers[0].rack) == (
            ME,
            False,
            "rack-1",
        )
    if version >= 2:
        assert reply.cluster_id == "the-cluster"
    if version >= 7:
        assert {partition.leader_epoch for partition in topic.partitions} == {4}
    if version >= 8:
        assert topic.topic_authorized_operations == NOT_ASKED
    if version >= 10:
        assert topic.topic_id == topic_id_of("orders")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_generic_encoder(version: int) -> None:
    """With leaders here, elsewhere and missing, and with offline replicas and failed disks."""
    states = (
        PartitionState(ME, LeaderEpoch(7), (ME, OTHER), (ME,)),
        PartitionState(OTHER, LeaderEpoch(0), (OTHER, ME, THIRD), (OTHER, ME)),
        PartitionState(NO_BROKER, LeaderEpoch(2), (THIRD,), ()),
        PartitionState(THIRD, LeaderEpoch(2), (THIRD, ME), (THIRD,)),
        *[PartitionState(ME, LeaderEpoch(1), (ME,), (ME,))] * 200,
        PartitionState(ME, LeaderEpoch(1), (ME,), (ME,)),  # FAILED
    )
    topic = TopicState(name="ünïted.1", topic_id=topic_id_of("a"), partitions=states)
    internal = topic_state("__consumer_offsets", 1)
    cluster = Cluster(topic, internal)
    encoder = TopicEncoder(version, LISTENER, ME)
    encoded = encoder.encode([topic, internal], cluster)  # type: ignore[arg-type]
    assert encoded == [generic(version, topic), generic(version, internal)]
    assert encoder.encode([topic], cluster)[0] is encoded[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 200])
def test_bytes_around_topics_are_those_of_the_generic_encoder(version: int, count: int) -> None:
    shape = response_shape(KEY, version)
    brokers = [
        ResponseBroker(BrokerId(number), f"höst-{number}", 9092, None if number % 2 else "rack")
        for number in range(count)
    ]
    message = shape(
        throttle_time=timedelta(),
        brokers=tuple(
            shape["brokers"](
                node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers
        ),
        cluster_id="the-cluster",
        controller_id=OTHER,
        topics=(),
        cluster_authorized_operations=264,
    )
    assert encode(message) == encode_body(
        version,
        brokers=brokers,
        cluster_id="the-cluster",
        controller_id=OTHER,
        topics=[],
        operations=264,
    )


class Cluster:
    """A cluster in which broker 2 has only another listener, and broker 3 is not alive."""

    def __init__(self, *topics: TopicState) -> None:
        self.version = 1
        self.brokers = {ME: node(ME), OTHER: node(OTHER, "ELSEWHERE")}
        self.topics = {topic.name: topic for topic in topics}
        lost = frozenset((ME,))
        self.failed = {FAILED: lost, TopicPartition(FAILED.topic, 10_000): lost}


def generic(version: int, topic: TopicState) -> bytes:
    shape = response_shape(KEY, version)["topics"]
    return encode(
        shape(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=tuple(
                shape["partitions"](
                    **described(version, number, state, (topic.name, number) == FAILED)
                )
                for number, state in enumerate(topic.partitions)
            ),
        )
    )


def described(version: int, number: int, state: PartitionState, has_failed: bool) -> dict[str, Any]:
    error = ErrorCode.NONE
    replicas, in_sync = state.replicas, state.in_sync
    if version == 0:
        replicas = tuple(broker for broker in replicas if broker == ME)
        in_sync = tuple(broker for broker in in_sync if broker == ME)
        if (replicas, in_sync) != (state.replicas, state.in_sync):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    if state.leader == OTHER:
        error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    elif state.leader != ME:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return {
        "error_code": error,
        "partition_index": number,
        "leader_id": ME if state.leader == ME else NO_BROKER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": in_sync,
        "offline_replicas": tuple(
            broker for broker in state.replicas if broker != ME or has_failed
        ),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_requested_by_null_and_in_version_0_by_an_empty_list(
    harness: ApiHarness, version: int
) -> None:
    for name in ("a", "b"):
        harness.make_topic(name)
    requested: Any = [] if version == 0 else None
    reply = harness.ask(KEY, version, topics=requested)
    assert [topic.name for topic in reply.topics] == ["a", "b"]
    if version > 0:
        assert harness.ask(KEY, version, topics=[]).topics == ()


def test_a_response_with_all_topics_reflects_every_change(harness: ApiHarness) -> None:
    harness.make_topic("a")
    before = harness.ask(KEY, LATEST, topics=None)
    assert (
        harness.send(KEY, LATEST, topics=None).bytes[8:]
        == (harness.send(KEY, LATEST, topics=None).bytes[8:])
    )
    harness.make_topic("b", 2)
    harness.update_metadata(topic_state("a", 1, epoch=9))
    harness.update_metadata(brokers=(node(ME), node(OTHER)))
    after = harness.ask(KEY, LATEST, topics=None)
    assert [topic.name for topic in before.topics] == ["a"]
    assert [(topic.name, topic.partitions[0].leader_epoch) for topic in after.topics] == [
        ("b", 0),
        ("a", 9),
    ]
    assert [broker.node_id for broker in after.brokers] == [ME, OTHER]
    harness.delete_topic("b")
    assert [topic.name for topic in harness.ask(KEY, LATEST, topics=None).topics] == ["a"]


def test_a_response_with_all_topics_is_encoded_once_per_address(harness: ApiHarness) -> None:
    harness.make_topic("a")
    here = harness.send(KEY, 9, topics=None)
    there = harness.send(KEY, 9, topics=None, connection=FakeConnection(host="::1", port=7))
    assert (here.reply.brokers[0].host, there.reply.brokers[0].host) == ("127.0.0.1", "::1")
    assert harness.send(KEY, 9, topics=None).reply == here.reply


def test_partitions_of_a_dead_leader_have_leader_not_available(harness: ApiHarness) -> None:
    harness.update_metadata(
        topic_state("a", 1, replicas=(OTHER, ME), leader=OTHER), brokers=(node(ME),)
    )
    (partition,) = only(ask(harness, LATEST, "a")).partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == (OTHER,)
    harness.update_metadata(brokers=(node(ME), node(OTHER)))
    (partition,) = only(ask(harness, LATEST, "a")).partitions
    assert (partition.error_code, partition.leader_id) == (0, OTHER)


def test_a_replica_on_a_failed_disk_is_offline_while_its_broker_is_alive(
    harness: ApiHarness,
) -> None:
    harness.update_metadata(
        topic_state("a", 2, replicas=(ME, OTHER)), brokers=(node(ME), node(OTHER))
    )
    for failed, offline in (({}, ()), ({TopicPartition("a", 1): {OTHER}}, (OTHER,)), ({}, ())):
        harness.update_metadata(failed={name: frozenset(item) for name, item in failed.items()})
        first, second = only(ask(harness, LATEST, "a")).partitions
        assert (first.offline_replicas, second.offline_replicas) == ((), offline)
        (whole,) = harness.ask(KEY, LATEST, topics=None).topics
        assert whole.partitions[1].offline_replicas == offline
        assert (second.error_code, second.leader_id) == (0, ME)


# -- addresses -----------------------------------------------------------------------------


def test_clients_get_the_advertised_addresses(tmp_path: Path) -> None:
    advertised = {"OUT": Endpoint("OUT", "PLAINTEXT", "broker.example.com", 443)}
    harness = ApiHarness(tmp_path, advertised=advertised)
    harness.update_metadata(brokers=(node(ME, "OUT", "IN"), node(OTHER, "IN")))
    outside = harness.send(KEY, 1, topics=[], connection=FakeConnection(listener="OUT"))
    inside = harness.send(
        KEY, 1, topics=[], connection=FakeConnection(listener="IN", host="10.0.0.1")
    )
    assert [(broker.host, broker.port) for broker in outside.reply.brokers] == [
        ("broker.example.com", 443)
    ]
    assert [(broker.host, broker.port) for broker in inside.reply.brokers] == [
        ("10.0.0.1", 9092),
        ("host-2", 9002),
    ]
    harness.close()


# -- auto-creation -------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_auto_creates_the_topic_and_gets_its_leaders(
    tmp_path: Path, version: int
) -> None:
    harness = ApiHarness(
        tmp_path, settings={"num.partitions": "3", "default.replication.factor": "2"}
    )
    topic = only(ask(harness, version, "fresh", allow_auto_topic_creation=True))
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    (created,) = harness.controller.created
    assert (created.name, created.partitions, created.replication_factor) == ("fresh", 3, 2)
    harness.close()


@pytest.mark.parametrize("version", range(4, VERSIONS[-1] + 1))
def test_nothing_is_created_without_the_requests_flag(harness: ApiHarness, version: int) -> None:
    topic = only(ask(harness, version, "fresh", allow_auto_topic_creation=False))
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.controller.created == []


def test_nothing_is_created_without_auto_create_topics_enable(tmp_path: Path) -> None:
    harness = ApiHarness(tmp_path, settings={"auto.create.topics.enable": "false"})
    topic = only(ask(harness, 1, "fresh"))
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.controller.created == []
    harness.close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\n", "a\0"])
def test_bad_names_create_nothing(harness: ApiHarness, name: str) -> None:
    topic = only(ask(harness, 4, name, allow_auto_topic_creation=True))
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    assert harness.controller.created == []


def test_internal_topics_are_not_auto_created(harness: ApiHarness) -> None:
    topic = only(ask(harness, 4, "__consumer_offsets", allow_auto_topic_creation=True))
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.controller.created == []


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_failed_creation_is_reported(
    harness: ApiHarness, refused: ErrorCode, expected: ErrorCode
) -> None:
    harness.controller.refusals["fresh"] = ApiError(refused, "because")
    assert only(ask(harness, 4, "fresh", allow_auto_topic_creation=True)).error_code == expected


def test_a_request_for_too_many_topics_creates_none(harness: ApiHarness) -> None:
    names = [f"fresh-{number}" for number in range(10_001)]
    reply = ask(harness, 4, *names, allow_auto_topic_creation=True)
    assert {topic.error_code for topic in reply.topics} == {ErrorCode.POLICY_VIOLATION}
    assert harness.controller.created == []


def test_a_topic_that_is_not_in_metadata_yet_is_retriable(harness: ApiHarness) -> None:
    harness.controller.is_slow = True
    topic = only(ask(harness, 4, "fresh", allow_auto_topic_creation=True))
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_the_connection_waits_while_a_topic_is_created(harness: ApiHarness) -> None:
    harness.runs_at_once = False
    sent = harness.send(KEY, 4, topics=[{"name": "fresh"}], allow_auto_topic_creation=True)
    assert not sent.is_answered
    harness.run_tasks()
    assert only(sent.reply).error_code == 0


def test_an_unexpected_error_fails_the_connection(harness: ApiHarness) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("of all things")

    harness.controller.create_topics = fail  # type: ignore[method-assign]
    sent = harness.send(KEY, 4, topics=[{"name": "fresh"}], allow_auto_topic_creation=True)
    assert not sent.is_answered
    assert harness.connection.is_closed
    (error,) = harness.connection.unexpected_errors
    assert repr(error) == "ZeroDivisionError('of all things')"


# -- topic ids -----------------------------------------------------------------------------


def test_topics_are_found_by_their_id(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    unknown = UUID(int=5)
    reply = harness.ask(
        KEY,
        12,
        topics=[{"topic_id": topic_id_of("orders"), "name": None}, {"topic_id": unknown}],
    )
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in reply.topics] == [
        (0, "orders", topic_id_of("orders")),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_versions_with_ids_only_in_responses_refuse_requests_by_id(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders")
    reply = harness.ask(KEY, version, topics=[{"topic_id": topic_id_of("orders"), "name": ""}])
    assert only(reply).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_without_name_and_id_is_invalid(harness: ApiHarness, version: int) -> None:
    reply = harness.ask(KEY, version, topics=[{"name": None}])
    assert only(reply).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_requested_twice_is_returned_once(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    reply = ask(harness, 12, "orders", "orders")
    assert only(reply).name == "orders"


# -- permissions ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_that_may_not_be_described_look_the_same_whether_they_exist(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("hidden")
    for name in ("hidden", "absent"):
        harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    reply = ask(harness, version, "hidden", "absent")
    assert [(topic.error_code, topic.partitions) for topic in reply.topics] == [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())
    ] * 2
    if version >= 10:
        assert {topic.topic_id for topic in reply.topics} <= {None, UUID(int=0)}
    assert harness.controller.created == []


def test_all_topics_are_those_that_may_be_described(harness: ApiHarness) -> None:
    for name in ("seen", "hidden"):
        harness.make_topic(name)
    assert len(harness.ask(KEY, LATEST, topics=None).topics) == 2
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "hidden")
    assert only(harness.ask(KEY, LATEST, topics=None)).name == "seen"


def test_an_id_does_not_reveal_the_name_of_a_hidden_topic(harness: ApiHarness) -> None:
    harness.make_topic("hidden")
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "hidden")
    topic = only(harness.ask(KEY, 12, topics=[{"topic_id": topic_id_of("hidden"), "name": None}]))
    assert (topic.error_code, topic.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


def test_creation_needs_its_own_permission(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    harness.guard.deny(AclOperation.CREATE, ResourceType.TOPIC, "forbidden")
    reply = ask(harness, 4, "forbidden", "allowed", allow_auto_topic_creation=True)
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("forbidden", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("allowed", 0),
    ]


@pytest.mark.parametrize("version", range(8, VERSIONS[-1] + 1))
def test_authorized_operations_are_returned_on_request(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    harness.guard.deny(AclOperation.DELETE, ResourceType.TOPIC, "orders")
    everything = (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
    for names in (["orders"], None):
        topics = None if names is None else [{"name": name} for name in names]
        reply = harness.ask(
            KEY,
            version,
            topics=topics,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        assert only(reply).topic_authorized_operations == sum(
            1 << operation for operation in everything
        )
        if version <= 10:
            assert reply.cluster_authorized_operations & (1 << AclOperation.CLUSTER_ACTION)
    assert ask(harness, version, "orders").topics[0].topic_authorized_operations == NOT_ASKED


def test_cluster_operations_are_none_without_describe(
    harness: ApiHarness,
) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    reply = ask(harness, 8, include_cluster_authorized_operations=True)
    assert reply.cluster_authorized_operations == 0


def test_responses_have_no_throttle_time(harness: ApiHarness) -> None:
    assert ask(harness, LATEST).throttle_time == timedelta()


def test_what_a_principal_may_do_with_the_cluster_is_told_to_nobody_else(
    harness: ApiHarness,
) -> None:
    allowed = harness.ask(KEY, 8, topics=None, include_cluster_authorized_operations=True)
    assert allowed.cluster_authorized_operations > 0
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    denied = harness.ask(KEY, 8, topics=None, include_cluster_authorized_operations=True)
    assert denied.cluster_authorized_operations == 0
    not_asked = harness.ask(KEY, 8, topics=None)
    assert not_asked.cluster_authorized_operations == NOT_ASKED
