"""The batch sender against a real broker."""

import threading

import pytest

import penstock
from penstock.client.data_calls import LATEST, FetchFrom
from penstock.client.errors import OutOfTime
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.batch_sender import BatchSender, produce_without_transaction

PARTITIONS = 3


@pytest.fixture
def client(penstock_broker: penstock.Broker) -> BlockingClient:
    return shared_client(ClientSettings(penstock_broker.bootstrap_servers))


@pytest.fixture
def topic(penstock_broker: penstock.Broker, request: pytest.FixtureRequest) -> str:
    name = f"sender-{request.node.name}"
    penstock_broker.create_topic(name, partitions=PARTITIONS)
    return name


def sender_of(client: BlockingClient, *, max_bytes: int = 1_000_000) -> BatchSender:
    produce = produce_without_transaction(acks=-1, timeout_ms=20_000)
    return BatchSender(client, produce, timeout_ms=20_000, max_bytes=max_bytes)


def batch_of(*values: str) -> bytearray:
    return build_batch([Record(n, 1, None, value.encode()) for n, value in enumerate(values)])


def values_in(client: BlockingClient, tp: TopicPartition) -> list[str]:
    (fetched,) = client.fetch([FetchFrom(tp, Offset(0))])
    batches = [fetched.batches[position:] for position, _ in iter_headers(fetched.batches)]
    return [str(record.value, "utf-8") for batch in batches for record in iter_records(batch)]  # type: ignore[arg-type]


def test_partitions_get_their_batches_in_order(client: BlockingClient, topic: str) -> None:
    sender = sender_of(client)
    for number in range(60):
        sender.send(TopicPartition(topic, number % PARTITIONS), batch_of(f"{number}", "more"), 2)
    sender.flush()
    for tp in (TopicPartition(topic, number) for number in range(PARTITIONS)):
        expected = [[f"{n}", "more"] for n in range(tp.partition, 60, PARTITIONS)]
        assert values_in(client, tp) == [value for pair in expected for value in pair]
        assert sender.end_offsets[tp] == 40


def test_bytes_in_flight_are_bounded(client: BlockingClient, topic: str) -> None:
    """A batch larger than the limit is sent alone."""
    batch = batch_of("x" * 1000)
    sender = sender_of(client, max_bytes=10)
    seen = []
    for _ in range(10):
        sender.send(TopicPartition(topic, 0), batch, 1)
        seen.append(sender.in_flight_bytes)
    sender.flush()
    assert max(seen) <= len(batch)
    assert sender.in_flight_bytes == 0
    assert (
        client.list_offsets({TopicPartition(topic, 0): LATEST})[TopicPartition(topic, 0)].offset
        == 10
    )


def test_rejected_batch_is_explained_and_stops_the_sender(
    client: BlockingClient, topic: str
) -> None:
    sender = sender_of(client, max_bytes=10_000_000)
    sender.send(TopicPartition(topic, 0), batch_of("x" * 2_000_000), 1)
    with pytest.raises(SparkSourceError, match=r"max\.message\.bytes.*kafka\.batch\.size"):
        sender.flush()
    with pytest.raises(SparkSourceError, match="MESSAGE_TOO_LARGE"):
        sender.send(TopicPartition(topic, 1), batch_of("two"), 1)
    ends = client.list_offsets({TopicPartition(topic, n): LATEST for n in range(2)})
    assert [end.offset for end in ends.values()] == [0, 0]


def test_retries_end_with_the_timeout(client: BlockingClient, topic: str) -> None:
    produce = produce_without_transaction(acks=-1, timeout_ms=1_500)
    sender = BatchSender(client, produce, timeout_ms=1_500, max_bytes=1_000)
    sender.send(TopicPartition(topic, PARTITIONS), batch_of("one"), 1)
    with pytest.raises(OutOfTime, match=f"has {PARTITIONS} partitions"):
        sender.flush()


def test_blocked_send_fails_when_the_task_ends(client: BlockingClient, topic: str) -> None:
    sender = sender_of(client, max_bytes=10)
    missing = TopicPartition(f"{topic}-missing", 0)
    sender.send(missing, batch_of("tried again and again"), 1)
    timer = threading.Timer(0.2, sender.cancel)
    timer.start()
    with pytest.raises(SparkSourceError, match="task ended"):
        sender.send(missing, batch_of("never sent"), 1)
    timer.join()
