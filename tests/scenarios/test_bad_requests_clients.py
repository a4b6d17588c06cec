"""Errors as users of a Kafka client see them: the code, and a helpful message."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.scenarios.watched_broker import WatchedBroker

import penstock
from penstock.client.errors import ClientError, SendFailed
from penstock.model.errors import ErrorCode

pytestmark = pytest.mark.xdist_group("bad-requests-of-clients")

SETTINGS = {"auto.create.topics.enable": False, "message.max.bytes": 100_000}
TIMEOUT_S = 180


@pytest.fixture(scope="module", autouse=True)
def _topics(watched: WatchedBroker) -> None:
    watched.create_topic("orders", partitions=2)
    watched.create_topic("narrow", config={"max.message.bytes": 5_000})
    watched.create_topic("compacted", config={"cleanup.policy": "compact"})
    watched.create_topic("a.b")


@pytest.fixture
def admin(broker: WatchedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.servers})


def error_of(futures: Mapping[Any, "Future[Any]"]) -> KafkaError:
    (future,) = futures.values()
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_S)
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


# -- topics ------------------------------------------------------------------------------------

BAD_NAMES = {
    "../x": "a-z A-Z 0-9 . _ -",
    "..": "reserved",
    ".": "reserved",
    "a/b": "a-z A-Z 0-9 . _ -",
    "a b": "a-z A-Z 0-9 . _ -",
    "orders\n": "\\n",
    "..%2fx": "a-z A-Z 0-9 . _ -",
    "\uff4frders": "a-z A-Z 0-9 . _ -",
    "x" * 250: "1 to 249",
    "a_b": "collides with a.b",
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_invalid_topic_name_is_rejected_with_the_rule(
    admin: AdminClient, broker: WatchedBroker, name: str
) -> None:
    before = folders(broker.data)
    error = error_of(admin.create_topics([NewTopic(name, 1, 1)]))
    assert error.code() == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert BAD_NAMES[name] in error.str()
    assert folders(broker.data) == before
    assert not (broker.data.parent / "x-0").exists()


def folders(data: Path) -> set[str]:
    """Without internal topics, whose partitions an earlier test may still be creating."""
    names = {entry.name for entry in os.scandir(data) if entry.is_dir()}
    return {name for name in names if not name.startswith("__")}


def test_the_longest_topic_name_is_accepted(admin: AdminClient, broker: WatchedBroker) -> None:
    name = "x" * 249
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    assert (broker.data / f"{name}-0").is_dir()


def creation(**fields: Any) -> NewTopic:
    return NewTopic(**{"topic": "new", "num_partitions": 1, "replication_factor": 1, **fields})


CREATIONS: list[tuple[NewTopic, ErrorCode, str]] = [
    (creation(topic="orders"), ErrorCode.TOPIC_ALREADY_EXISTS, "orders exists already"),
    (creation(num_partitions=0), ErrorCode.INVALID_PARTITIONS, "at least 1"),
    (creation(num_partitions=20_000), ErrorCode.POLICY_VIOLATION, "at most 10000 partitions"),
    (creation(replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR, "1 broker(s) are alive"),
    *(
        (creation(config={name: value}), ErrorCode.INVALID_CONFIG, allowed)
        for name, value, allowed in (
            ("retention.ms", "soon", "a whole number"),
            ("retention.ms", "-2", "from -1"),
            ("cleanup.policy", "burn", "delete, compact"),
            ("compression.type", "rar", "zstd"),
            ("retentoin.ms", "1", "retention.ms"),
            ("log.dirs", "/etc", "not a known topic setting"),
        )
    ),
]


@pytest.mark.parametrize(
    ("topic", "code", "words"), CREATIONS, ids=[words for _, _, words in CREATIONS]
)
def test_an_invalid_topic_is_rejected_with_the_reason(
    admin: AdminClient, broker: WatchedBroker, topic: NewTopic, code: ErrorCode, words: str
) -> None:
    error = error_of(admin.create_topics([topic]))
    assert error.code() == code, error
    assert words in error.str()
    assert not (broker.data / "new-0").exists()


def test_an_unknown_topic_cannot_be_deleted_or_get_partitions(admin: AdminClient) -> None:
    deleted = error_of(admin.delete_topics(["absent"]))
    assert deleted.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    extended = error_of(admin.create_partitions([NewPartitions("absent", 3)]))
    assert extended.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "'absent' does not exist" in extended.str()


def test_partitions_cannot_be_removed(admin: AdminClient) -> None:
    error = error_of(admin.create_partitions([NewPartitions("orders", 1)]))
    assert error.code() == ErrorCode.INVALID_PARTITIONS
    assert "cannot shrink" in error.str()


# -- configs -----------------------------------------------------------------------------------

ALTERATIONS = [
    ("topic", "orders", "retention.ms", "soon", ErrorCode.INVALID_CONFIG, "a whole number"),
    ("topic", "orders", "retentoin.ms", "1", ErrorCode.INVALID_CONFIG, "retention.ms"),
    ("topic", "absent", "retention.ms", "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "absent"),
    ("broker", "1", "log.dirs", "/etc", ErrorCode.INVALID_REQUEST, "restart the broker"),
    ("broker", "1", "metric.reporters", "evil.Class", ErrorCode.INVALID_REQUEST, "read-only"),
]


@pytest.mark.parametrize(("kind", "resource", "name", "value", "code", "words"), ALTERATIONS)
def test_an_invalid_config_is_rejected_with_the_rule(
    admin: AdminClient,
    kind: str,
    resource: str,
    name: str,
    value: str,
    code: ErrorCode,
    words: str,
) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(kind, resource, incremental_configs=[entry])
    error = error_of(admin.incremental_alter_configs([wanted]))
    assert error.code() == code, error
    assert words in error.str()


def test_configs_of_an_unknown_topic_are_an_error(admin: AdminClient) -> None:
    error = error_of(admin.describe_configs([ConfigResource("topic", "absent")]))
    assert error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "create it first" in error.str()


# -- records -----------------------------------------------------------------------------------


def send_error(broker: WatchedBroker, topic: str, value: bytes, **settings: Any) -> KafkaError:
    """The error in the delivery report; the client's own size limit is raised."""
    errors: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.servers,
            "message.max.bytes": 50_000_000,
            "topic.metadata.propagation.max.ms": 500,
            **settings,
        }
    )
    producer.produce(topic, value, on_delivery=note)
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = errors
    assert error is not None
    return error


@pytest.mark.parametrize(("topic", "size"), [("orders", 100_001), ("narrow", 5_001)])
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_record_above_max_message_bytes_is_rejected(
    broker: WatchedBroker, topic: str, size: int, idempotent: bool
) -> None:
    error = send_error(broker, topic, bytes(size), **{"enable.idempotence": idempotent})
    assert error.code() == ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_without_a_key_is_rejected_by_a_compacted_topic(broker: WatchedBroker) -> None:
    assert send_error(broker, "compacted", b"v").code() == ErrorCode.INVALID_RECORD


def test_producing_to_an_unknown_topic_fails(broker: WatchedBroker) -> None:
    error = send_error(broker, "absent", b"v")
    assert error.code() in (
        KafkaError._UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def test_consuming_an_offset_out_of_range_says_so(broker: WatchedBroker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition("orders", 0, 10**9)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str()


def test_metadata_of_an_unknown_topic_has_an_error(admin: AdminClient) -> None:
    for name, code in (
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("../x", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        error = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].error
        assert error is not None
        assert error.code() == code


# -- Penstock's own clients --------------------------------------------------------------------

OWN: list[tuple[Callable[[penstock.Producer], Any], ErrorCode | None, str]] = [
    (lambda own: own.send_and_wait("orders", bytes(100_001)), ErrorCode.MESSAGE_TOO_LARGE, "large"),
    (lambda own: own.send_and_wait("compacted", b"v"), ErrorCode.INVALID_RECORD, "record"),
    (lambda own: own.send_and_wait("absent", b"v"), None, "absent"),
]


@pytest.mark.parametrize(("work", "code", "words"), OWN, ids=[words for _, _, words in OWN])
def test_penstocks_producer_gives_the_same_errors(
    broker: WatchedBroker,
    work: Callable[[penstock.Producer], Any],
    code: ErrorCode | None,
    words: str,
) -> None:
    config = {"message.max.bytes": 50_000_000, "topic.metadata.propagation.max.ms": 500}
    with (
        penstock.Producer(broker.servers, config=config) as producer,
        pytest.raises(SendFailed) as raised,
    ):
        work(producer)
    if code is not None:
        assert raised.value.code == code
    assert words in str(raised.value).lower()


@pytest.mark.parametrize("name", ["../x", "a_b", "orders"])
def test_broker_create_topic_gives_the_same_errors(broker: WatchedBroker, name: str) -> None:
    with pytest.raises(ClientError) as raised:
        broker.create_topic(name)
    assert name in str(raised.value)
