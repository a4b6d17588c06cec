"""`penstock.Producer` against a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping

import pytest
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest

import penstock
from penstock.client.data_calls import FetchFrom
from penstock.client.errors import ClientClosed, FlushTimedOut, QueueFull, SendFailed
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, iter_records

pytestmark = pytest.mark.xdist_group("clients")

# Values of Java's murmur2, taken from Kafka's own tests.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def stored(broker: BrokerUnderTest, topic: str, partition: int = 0) -> list[Record]:
    """The records of the partition, read as raw batches."""
    fetch_from = FetchFrom(TopicPartition(topic, partition), Offset(0), 16 * 1024**2)
    (got,) = ask(broker, lambda client: client.fetch([fetch_from], max_wait_ms=0))
    return [
        record
        for position, header in iter_headers(got.batches)
        for record in iter_records(got.batches[position : position + header.size])
    ]


def dead_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_a_record_is_stored_with_all_its_fields(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=2)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        metadata = producer.send_and_wait(
            topic,
            b"value",
            key="key",
            partition=1,
            headers={"trace": b"1", "empty": None},
            timestamp_ms=1_700_000_000_000,
        )
    assert metadata == (topic, 1, 0, 1_700_000_000_000)
    headers = (("trace", b"1"), ("empty", None))
    assert stored(broker, topic, 1) == [Record(0, 1_700_000_000_000, b"key", b"value", headers)]


def test_values_and_keys_may_be_null(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, key=b"tombstone")
        producer.send(topic, "text", headers=[("twice", b"1"), ("twice", b"2")])
    first, second = stored(broker, topic)
    assert (first.key, first.value) == (b"tombstone", None)
    assert (second.key, second.value) == (None, b"text")
    assert second.headers == (("twice", b"1"), ("twice", b"2"))


def test_keys_go_to_the_partitions_of_the_java_client(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=7)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        places = {key: producer.send(topic, b"v", key=key) for key in JAVA_MURMUR2}
    expected = {key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in JAVA_MURMUR2.items()}
    assert {key: sent.result().partition for key, sent in places.items()} == expected


def test_the_round_robin_partitioner_spreads_evenly(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=3)
    with penstock.Producer(broker.bootstrap_servers, partitioner="round_robin") as producer:
        futures = [producer.send(topic, b"v", key=b"same") for _ in range(9)]
    assert Counter(future.result().partition for future in futures) == {0: 3, 1: 3, 2: 3}


def test_hash_or_round_robin_hashes_keys_and_spreads_the_rest(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=3)
    servers = broker.bootstrap_servers
    with penstock.Producer(servers, partitioner="hash_or_round_robin") as producer:
        rest = [producer.send(topic, b"v") for _ in range(9)]
        keyed = {key: producer.send(topic, b"v", key=key) for key in JAVA_MURMUR2}
    assert Counter(future.result().partition for future in rest) == {0: 3, 1: 3, 2: 3}
    expected = {key: (hashed & 0x7FFFFFFF) % 3 for key, hashed in JAVA_MURMUR2.items()}
    assert {key: future.result().partition for key, future in keyed.items()} == expected


def test_the_sticky_partitioner_fills_a_batch_before_it_switches(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=3)
    with penstock.Producer(
        broker.bootstrap_servers, partitioner="sticky", batch_size=1_000
    ) as producer:
        futures = [producer.send(topic, bytes(100), key=str(n)) for n in range(30)]
    places = [future.result().partition for future in futures]
    moves = sum(one != other for one, other in itertools.pairwise(places))
    assert moves == 2
    assert len(set(places)) > 1


def test_a_function_chooses_the_partition(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=3)
    seen = []

    def by_length(key: bytes | None, value: bytes | None, partitions: int) -> int:
        seen.append((key, value, partitions))
        return len(value or b"") % partitions

    with penstock.Producer(broker.bootstrap_servers, partitioner=by_length) as producer:
        futures = [producer.send(topic, "x" * n, key="k") for n in range(4)]
    assert [future.result().partition for future in futures] == [0, 1, 2, 0]
    assert seen[1] == (b"k", b"x", 3)


def test_an_object_with_a_partition_method_chooses_the_partition(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=3)

    class LastPartition:
        def partition(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
            return partitions - 1

    with penstock.Producer(broker.bootstrap_servers, partitioner=LastPartition()) as producer:
        assert producer.send_and_wait(topic, b"v", key=b"k").partition == 2


def test_the_retry_interval_stays_the_same_from_one_retry_to_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As librdkafka reports its settings: its back-off would double, up to a second."""
    caplog.set_level("DEBUG", logger="penstock.rdkafka")
    with penstock.Producer("127.0.0.1:1", retry_interval_ms=2_500, config={"debug": "conf"}):
        pass
    reported = [line.rpartition("]:   ")[2] for line in caplog.messages]
    assert "retry.backoff.ms = 2500" in reported
    assert "retry.backoff.max.ms = 2500" in reported


def test_a_partition_that_does_not_exist_fails_the_record(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=2)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send_and_wait(topic, b"v")  # fetches the topic's metadata
        with pytest.raises(SendFailed, match=r"[Uu]nknown partition"):
            producer.send_and_wait(topic, b"v", partition=99)


def test_the_error_for_an_unknown_partitioner_lists_the_known_ones(broker: BrokerUnderTest) -> None:
    with pytest.raises(
        ValueError, match=r"'random'.*hash, hash_or_round_robin, round_robin, sticky"
    ):
        penstock.Producer(broker.bootstrap_servers, partitioner="random")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({"compression": "none"}, Codec.NONE),
        ({"compression": "gzip"}, Codec.GZIP),
        ({"compression": "snappy"}, Codec.SNAPPY),
        ({"compression": "lz4"}, Codec.LZ4),
        ({"compression": "zstd"}, Codec.ZSTD),
    ],
    ids=lambda value: value.name if isinstance(value, Codec) else "",
)
def test_batches_are_compressed_with_the_given_codec(
    broker: BrokerUnderTest, options: Mapping[str, str], codec: Codec
) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers, linger_ms=20, **options) as producer:  # type: ignore[arg-type]
        for number in range(50):
            producer.send(topic, f"{number} " * 50)
    assert len(stored(broker, topic)) == 50
    assert {header.codec for header in broker.stored_batches(topic, 0)} == {codec}


@pytest.mark.parametrize(("acks", "has_producer"), [("all", True), (1, False), (0, False)])
def test_a_producer_is_idempotent_only_with_acks_all(
    broker: BrokerUnderTest, acks: str | int, has_producer: bool
) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers, acks=acks) as producer:  # type: ignore[arg-type]
        metadata = producer.send_and_wait(topic, b"v")
        assert metadata.offset == (-1 if acks == 0 else 0)
    deadline = time.monotonic() + 180
    while not (headers := broker.stored_batches(topic, 0)) and time.monotonic() < deadline:
        time.sleep(0.01)  # with acks=0 there is no response that says when it has arrived
    assert [header.has_producer for header in headers] == [has_producer]


def test_a_record_above_max_message_bytes_fails_with_the_error_code_of_the_broker(
    broker: BrokerUnderTest,
) -> None:
    topic = new_topic(broker, partitions=1, max__message__bytes="1000")
    with penstock.Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(SendFailed, match=f"topic '{topic}'") as caught:
            producer.send_and_wait(topic, bytes(5_000))
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send_and_wait(topic, b"small").offset == 0


def test_a_record_above_the_limit_of_the_producer_fails_at_once(broker: BrokerUnderTest) -> None:
    with (
        penstock.Producer(broker.bootstrap_servers) as producer,
        pytest.raises(SendFailed, match="too large") as caught,
    ):
        producer.send(new_name(), bytes(2_000_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_send_blocks_while_the_queue_is_full(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(
        broker.bootstrap_servers, max_queued_messages=10, linger_ms=0
    ) as producer:
        futures = [producer.send(topic, str(number)) for number in range(100)]
        producer.flush()
    assert [future.result().offset for future in futures] == list(range(100))


def test_send_fails_if_the_queue_stays_full() -> None:
    producer = penstock.Producer(dead_address(), max_queued_messages=1, max_block_ms=200)
    waiting = producer.send("t", b"first")
    with pytest.raises(QueueFull, match=r"0\.2 s.*refused"):
        producer.send("t", b"second")
    with pytest.raises(FlushTimedOut, match="1 records"):
        producer.close(timeout_s=0.1)
    assert isinstance(waiting.exception(timeout=0), SendFailed)


def test_closing_completes_every_future_even_without_a_broker() -> None:
    producer = penstock.Producer(dead_address())
    futures = [producer.send("t", b"v") for _ in range(10)]
    with pytest.raises(FlushTimedOut, match="10 records"):
        producer.close(timeout_s=0.1)
    assert {type(future.exception(timeout=0)) for future in futures} == {SendFailed}
    with pytest.raises(ClientClosed):
        producer.send("t", b"v")
    producer.close()


def test_a_delivery_timeout_names_its_cause() -> None:
    address = dead_address()
    with penstock.Producer(address, delivery_timeout_ms=300) as producer:
        with pytest.raises(SendFailed, match=f"timed out.*{address}.*refused") as caught:
            producer.send_and_wait("t", b"v")
        assert caught.value.code is None


def test_no_thread_outlives_its_producer(broker: BrokerUnderTest) -> None:
    with penstock.Producer(broker.bootstrap_servers):
        assert "penstock producer" in {thread.name for thread in threading.enumerate()}
    assert "penstock producer" not in {thread.name for thread in threading.enumerate()}


def test_a_sent_record_cannot_be_cancelled(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        future = producer.send(topic, b"v")
        assert not future.cancel()
        assert future.result().offset == 0
