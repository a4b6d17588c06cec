"""`penstock.Consumer` against a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest

import penstock
from penstock.client.errors import ClientClosed, ConsumeFailed
from penstock.model.ids import Offset, TopicPartition

pytestmark = pytest.mark.xdist_group("clients")

PATIENCE_S = 180.0


def consumer_of(broker: BrokerUnderTest, *topics: str, **options: object) -> penstock.Consumer:
    settings = {"timeout_s": PATIENCE_S, **options}
    return penstock.Consumer(topics, bootstrap_servers=broker.bootstrap_servers, **settings)  # type: ignore[arg-type]


def send(broker: BrokerUnderTest, topic: str, *values: str, partition: int = 0) -> None:
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def values(messages: Iterator[penstock.Message], count: int) -> list[bytes | None]:
    return [message.value for message in itertools.islice(messages, count)]


@pytest.mark.quick
def test_from_beginning_reads_every_record(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=2)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send(
            topic, b"v", key=b"k", partition=1, headers={"h": b"1"}, timestamp_ms=1_700_000_000_000
        )
    with consumer_of(broker, topic, from_beginning=True) as consumer:
        message = next(consumer)
    assert message == penstock.Message(
        topic=topic,
        partition=1,
        offset=0,
        key=b"k",
        value=b"v",
        headers=(("h", b"1"),),
        timestamp_ms=1_700_000_000_000,
    )


def test_order_within_a_partition_is_kept(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    numbers = [str(number) for number in range(3_000)]
    send(broker, topic, *numbers)
    with consumer_of(broker, topic, from_beginning=True) as consumer:
        assert values(consumer, 3_000) == [number.encode() for number in numbers]


def test_without_from_beginning_only_new_records_are_read(
    broker: BrokerUnderTest,
) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, "before")
    with consumer_of(broker, topic) as consumer:
        send(broker, topic, "after")  # after the consumer was created, before its first read
        assert values(consumer, 1) == [b"after"]


def test_several_topics_are_read_together(broker: BrokerUnderTest) -> None:
    topics = [new_topic(broker, partitions=1) for _ in range(2)]
    for topic in topics:
        send(broker, topic, f"of {topic}")
    with consumer_of(broker, *topics, from_beginning=True) as consumer:
        assert {message.topic for message in itertools.islice(consumer, 2)} == set(topics)
        assert consumer.assignment() == {TopicPartition(topic, 0) for topic in topics}


def test_iteration_ends_when_no_record_arrives_within_the_timeout(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, "only")
    with consumer_of(broker, topic, from_beginning=True, timeout_s=1) as consumer:
        (only,) = consumer.poll_batch(1, PATIENCE_S)
        assert only.value == b"only"
        assert list(consumer) == []


def test_poll_batch_returns_the_available_records_up_to_a_limit(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, *map(str, range(25)))
    with consumer_of(broker, topic, from_beginning=True) as consumer:
        got: list[bytes | None] = []
        while len(got) < 25:
            batch = consumer.poll_batch(10, PATIENCE_S)
            assert 1 <= len(batch) <= 10
            got += [message.value for message in batch]
        assert got == [str(number).encode() for number in range(25)]
        assert consumer.poll_batch(10, 0.05) == []


def test_reading_continues_at_the_offset_of_a_seek(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, *map(str, range(10)))
    with consumer_of(broker, topic, from_beginning=True) as consumer:
        consumer.seek(0, 7)
        assert values(consumer, 3) == [b"7", b"8", b"9"]
        consumer.seek(0, 2)
        assert values(consumer, 1) == [b"2"]
        consumer.seek(0, 5, topic=topic)  # beyond the records fetched in advance
        assert values(consumer, 5) == [b"5", b"6", b"7", b"8", b"9"]


def test_reading_continues_at_the_timestamp_of_a_seek(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=2)
    start_ms = 1_700_000_000_000
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=0, timestamp_ms=start_ms + number * 1_000)
    with consumer_of(broker, topic) as consumer:
        consumer.seek_to_time(start_ms + 6_500)
        assert values(consumer, 3) == [b"7", b"8", b"9"]
        consumer.seek_to_time(start_ms + 3_600_000)
        send(broker, topic, "new", partition=0)
        send(broker, topic, "new", partition=1)
        assert values(consumer, 2) == [b"new", b"new"]


def test_partitions_that_are_added_later_are_read_from_their_beginning(
    broker: BrokerUnderTest,
) -> None:
    topic = new_topic(broker, partitions=1)
    with consumer_of(broker, topic, metadata_max_age_ms=200) as consumer:
        ask(broker, lambda client: client.admin.create_partitions({topic: 2}))
        ask(broker, lambda client: client.log_end_offsets([TopicPartition(topic, 1)]))
        send(broker, topic, "in the new one", partition=1)
        message = next(consumer)
    assert (message.partition, message.value) == (1, b"in the new one")


def test_records_below_the_log_start_are_skipped(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, *map(str, range(10)))
    before = {TopicPartition(topic, 0): Offset(6)}
    ask(broker, lambda client: client.admin.delete_records(before))
    with consumer_of(broker, topic, from_beginning=True) as consumer:
        assert values(consumer, 4) == [b"6", b"7", b"8", b"9"]


def test_closing_from_another_thread_ends_the_iteration(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, "first")
    consumer = consumer_of(broker, topic, from_beginning=True, timeout_s=None)
    seen = []
    closer = threading.Thread(target=consumer.close)
    for message in consumer:
        seen.append(message.value)
        closer.start()
    closer.join()
    assert seen == [b"first"]
    assert list(consumer) == []
    with pytest.raises(ClientClosed):
        consumer.assignment()
    consumer.close()


def test_commit_without_a_group_fails(broker: BrokerUnderTest) -> None:
    with (
        consumer_of(broker, new_topic(broker)) as consumer,
        pytest.raises(ConsumeFailed, match="name a group"),
    ):
        consumer.commit()


def test_the_error_names_a_topic_that_does_not_exist(broker: BrokerUnderTest) -> None:
    missing = new_name()
    with pytest.raises(ConsumeFailed, match=missing):
        consumer_of(broker, missing)


def test_the_error_names_the_address_of_an_unreachable_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConsumeFailed, match=f"{address}.*refused"):
        penstock.Consumer("t", bootstrap_servers=address, connect_timeout_s=3)


def test_a_timeout_begins_when_the_group_has_assigned_partitions() -> None:
    settings = {"group.initial.rebalance.delay.ms": "1500"}
    with penstock.Broker(config=settings) as broker:
        broker.create_topic("orders", partitions=1)
        with penstock.Producer(broker.bootstrap_servers) as producer:
            producer.send("orders", "first")
        with penstock.Consumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group="billing",
            from_beginning=True,
            timeout_s=1,
            connect_timeout_s=PATIENCE_S,
        ) as consumer:
            assert [message.value for message in consumer] == [b"first"]


def test_a_topic_does_not_look_empty_while_the_group_has_assigned_no_partitions() -> None:
    settings = {"group.initial.rebalance.delay.ms": "600000"}
    with penstock.Broker(config=settings) as broker:
        broker.create_topic("orders", partitions=1)
        with penstock.Consumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group="billing",
            connect_timeout_s=PATIENCE_S,
        ) as consumer:
            assert consumer.poll_batch(1, timeout_s=0.1) == []
            with pytest.raises(ConsumeFailed, match="'billing' has assigned no partitions yet"):
                consumer.check_reachable()


@pytest.fixture
def groups() -> str:
    """The id of a new group."""
    return new_name()


def test_a_group_continues_at_its_committed_offsets(broker: BrokerUnderTest, groups: str) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, *map(str, range(10)))
    with consumer_of(
        broker, topic, group=groups, from_beginning=True, auto_commit=False
    ) as consumer:
        assert values(consumer, 3) == [b"0", b"1", b"2"]
        consumer.commit()
        assert values(consumer, 2) == [b"3", b"4"]
    with consumer_of(
        broker, topic, group=groups, from_beginning=True, auto_commit=False
    ) as consumer:
        assert values(consumer, 1) == [b"3"]


def test_closing_a_consumer_commits_the_delivered_records(
    broker: BrokerUnderTest, groups: str
) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, *map(str, range(10)))
    with consumer_of(broker, topic, group=groups, from_beginning=True) as consumer:
        assert values(consumer, 4) == [b"0", b"1", b"2", b"3"]
    with consumer_of(broker, topic, group=groups, from_beginning=True) as consumer:
        assert values(consumer, 1) == [b"4"]


def test_a_message_whose_processing_failed_is_read_again(
    broker: BrokerUnderTest, groups: str
) -> None:
    topic = new_topic(broker, partitions=1)
    send(broker, topic, *map(str, range(10)))

    def fail_at_three() -> None:
        with consumer_of(broker, topic, group=groups, from_beginning=True) as consumer:
            for message in consumer:
                if message.value == b"3":
                    raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail_at_three()
    with consumer_of(broker, topic, group=groups, from_beginning=True) as consumer:
        assert values(consumer, 1) == [b"3"]


def test_members_of_a_group_share_the_partitions(broker: BrokerUnderTest, groups: str) -> None:
    topic = new_topic(broker, partitions=2)
    with (
        consumer_of(broker, topic, group=groups) as one,
        consumer_of(broker, topic, group=groups) as other,
    ):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            one.poll_batch(1, 0.1)
            other.poll_batch(1, 0.1)
            if len(one.assignment()) == len(other.assignment()) == 1:
                break
        assert one.assignment() | other.assignment() == {
            TopicPartition(topic, 0),
            TopicPartition(topic, 1),
        }


def test_read_committed_skips_aborted_records(broker: BrokerUnderTest, groups: str) -> None:
    from confluent_kafka import Producer

    topic = new_topic(broker, partitions=1)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": groups}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    for value, end in ((b"aborted", producer.abort_transaction), (b"kept", None)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        (end or producer.commit_transaction)(PATIENCE_S)
    with consumer_of(broker, topic, from_beginning=True, isolation="read_committed") as consumer:
        assert values(consumer, 1) == [b"kept"]
    with consumer_of(broker, topic, from_beginning=True) as consumer:
        assert values(consumer, 2) == [b"aborted", b"kept"]


def test_members_with_ceil_range_get_shares_that_are_rounded_up(broker: BrokerUnderTest) -> None:
    """Of 7 partitions, three members get 3, 3 and 1; by Kafka's range it would be 3, 2 and 2."""
    topic = new_topic(broker, partitions=7)
    with ExitStack() as stack:
        members = [
            stack.enter_context(consumer_of(broker, topic, group=topic, assignor="ceil-range"))
            for _ in range(3)
        ]
        deadline = time.monotonic() + PATIENCE_S
        while sorted(len(member.assignment()) for member in members) != [1, 3, 3]:
            assert time.monotonic() < deadline, [member.assignment() for member in members]
            for member in members:
                member.poll_batch(1, timeout_s=0.1)
        owned = [tp.partition for member in members for tp in member.assignment()]
        assert sorted(owned) == list(range(7))


def test_an_assignor_without_a_group_is_refused(broker: BrokerUnderTest) -> None:
    with pytest.raises(ValueError, match="'range' shares partitions in a group"):
        consumer_of(broker, "orders", assignor="range")
