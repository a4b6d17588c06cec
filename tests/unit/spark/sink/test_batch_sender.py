"""Batches on their way, to a real broker."""

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
    name = f"outbox-{request.node.name}"
    penstock_broker.create_topic(name, partitions=PARTITIONS)
    return name


def outbox_of(client: BlockingClient, *, most_bytes: int = 1_000_000) -> BatchSender:
    produce = produce_without_transaction(acks=-1, timeout_ms=20_000)
    return BatchSender(client, produce, timeout_ms=20_000, most_bytes=most_bytes)


def batch_of(*values: str) -> bytearray:
    return build_batch([Record(n, 1, None, value.encode()) for n, value in enumerate(values)])


def values_in(client: BlockingClient, partition: TopicPartition) -> list[str]:
    (fetched,) = client.fetch([FetchFrom(partition, Offset(0))])
    batches = [fetched.batches[place:] for place, _ in iter_headers(fetched.batches)]
    return [str(record.value, "utf-8") for batch in batches for record in iter_records(batch)]  # type: ignore[arg-type]


def test_each_partition_gets_its_batches_in_order(client: BlockingClient, topic: str) -> None:
    outbox = outbox_of(client)
    for number in range(60):
        outbox.send(TopicPartition(topic, number % PARTITIONS), batch_of(f"{number}", "more"), 2)
    outbox.flush()
    for partition in (TopicPartition(topic, number) for number in range(PARTITIONS)):
        expected = [[f"{n}", "more"] for n in range(partition.partition, 60, PARTITIONS)]
        assert values_in(client, partition) == [name for pair in expected for name in pair]
        assert outbox.end_offsets[partition] == 40


def test_no_more_bytes_are_on_their_way_than_allowed(client: BlockingClient, topic: str) -> None:
    """A batch that is larger than all that is allowed goes alone."""
    batch = batch_of("x" * 1000)
    outbox = outbox_of(client, most_bytes=10)
    seen = []
    for _ in range(10):
        outbox.send(TopicPartition(topic, 0), batch, 1)
        seen.append(outbox.in_flight_bytes)
    outbox.flush()
    assert max(seen) <= len(batch)
    assert outbox.in_flight_bytes == 0
    assert (
        client.list_offsets({TopicPartition(topic, 0): LATEST})[TopicPartition(topic, 0)].offset
        == 10
    )


def test_what_the_cluster_refuses_is_explained_and_nothing_follows_it(
    client: BlockingClient, topic: str
) -> None:
    outbox = outbox_of(client, most_bytes=10_000_000)
    outbox.send(TopicPartition(topic, 0), batch_of("x" * 2_000_000), 1)
    with pytest.raises(SparkSourceError, match=r"max\.message\.bytes.*kafka\.batch\.size"):
        outbox.flush()
    with pytest.raises(SparkSourceError, match="MESSAGE_TOO_LARGE"):
        outbox.send(TopicPartition(topic, 1), batch_of("two"), 1)
    ends = client.list_offsets({TopicPartition(topic, n): LATEST for n in range(2)})
    assert [end.offset for end in ends.values()] == [0, 0]


def test_what_is_tried_in_vain_ends_with_its_time(client: BlockingClient, topic: str) -> None:
    produce = produce_without_transaction(acks=-1, timeout_ms=1_500)
    outbox = BatchSender(client, produce, timeout_ms=1_500, most_bytes=1_000)
    outbox.send(TopicPartition(topic, PARTITIONS), batch_of("one"), 1)
    with pytest.raises(OutOfTime, match=f"has {PARTITIONS} partitions"):
        outbox.flush()


def test_who_waits_for_room_learns_that_the_task_has_ended(
    client: BlockingClient, topic: str
) -> None:
    outbox = outbox_of(client, most_bytes=10)
    missing = TopicPartition(f"{topic}-missing", 0)
    outbox.send(missing, batch_of("tried again and again"), 1)
    ended = threading.Timer(0.2, outbox.give_up)
    ended.start()
    with pytest.raises(SparkSourceError, match="has ended"):
        outbox.send(missing, batch_of("never sent"), 1)
    ended.join()
