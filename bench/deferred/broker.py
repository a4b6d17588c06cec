"""Measures one broker in a process of its own: librdkafka produces idempotently, and reads."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

import penstock
from bench.measure import alternate, ratio

TOPIC, PLAIN = "delayed", "plain"
PARTITIONS = 4
VALUE = b"v" * 100
ROUNDS = 10
PER_ROUND = 40_000
DUE_PER_S = 10_000
DUE_S = 5
LEAST_HEAD_START_S = 20.0  # to send what is due at this rate
LOAD_TIMEOUT_S = 900.0
HOUR_MS = 3_600_000

Headers = list[tuple[str, str | bytes | None]]


def measure(pending: int, folder: str) -> dict[str, Any]:
    data = Path(folder) / "data"
    results: dict[str, Any] = {"message_bytes": len(VALUE), "partitions": PARTITIONS}
    with penstock.Broker(data=data) as broker:
        broker.create_topic(PLAIN, partitions=PARTITIONS)
        broker.create_topic(
            TOPIC, partitions=PARTITIONS, config={"penstock.delayed.messages": "true"}
        )
        results["throughput"] = _throughput(broker)
        results["lateness_ms"] = _lateness(broker, results["throughput"]["delayed"])
        before_bytes = _memory(broker)
        _send(broker, TOPIC, pending, lambda number: _delay((number % 700 + 2) * HOUR_MS))
        results["pending"] = {"count": pending, "mb": round((_memory(broker) - before_bytes) / 1e6)}
        broker.kill()
    started_s = time.perf_counter()
    with penstock.Broker(data=data, config={"metrics.listener": "127.0.0.1:0"}) as broker:
        serving_s = time.perf_counter() - started_s
        everything = pending + (ROUNDS + 1) * PER_ROUND
        while (loaded := _pending(broker)) < everything:
            waited_s = time.perf_counter() - started_s
            assert waited_s < LOAD_TIMEOUT_S, f"{loaded} of {everything} messages are loaded"
            time.sleep(0.05)
        assert loaded == everything, f"{loaded} messages wait, {everything} were sent"
        results["pending"] |= {
            "loaded": everything,
            "start_s": round(serving_s, 2),
            "start_and_load_s": round(time.perf_counter() - started_s, 2),
        }
    return results


def _pending(broker: penstock.Broker) -> float:
    match = re.search(r"metrics at (http://\S+)/metrics", broker.logs())
    assert match is not None
    with urlopen(f"{match[1]}/metrics", timeout=30) as response:
        text = response.read().decode()
    value = re.search(r"^penstock_delayed_messages_pending (\S+)$", text, flags=re.MULTILINE)
    assert value is not None
    return float(value[1])


def _throughput(broker: penstock.Broker) -> dict[str, Any]:
    works: dict[str, Callable[[], None]] = {
        "plain": lambda: _send(broker, PLAIN, PER_ROUND, lambda _: []),
        "not_delayed": lambda: _send(broker, TOPIC, PER_ROUND, lambda _: []),
        "delayed": lambda: _send(broker, TOPIC, PER_ROUND, lambda _: _delay(HOUR_MS * 24)),
    }
    alternate(1, **works)  # opens files, imports modules, creates __penstock_deferred
    seconds = alternate(ROUNDS, **works)
    rates = {name: round(PER_ROUND / min(taken)) for name, taken in seconds.items()}
    return rates | {
        "delayed_to_plain": ratio(seconds["plain"], seconds["delayed"]),
        "not_delayed_to_plain": ratio(seconds["plain"], seconds["not_delayed"]),
    }


def _lateness(broker: penstock.Broker, sent_per_s: float) -> dict[str, Any]:
    """Of messages that are due at a constant rate, as a consumer sees them."""
    count = DUE_PER_S * DUE_S
    head_start_s = max(LEAST_HEAD_START_S, 2 * count / sent_per_s)
    first_ms = int((time.time() + head_start_s) * 1000)
    end_offsets = _end_offsets(broker)
    _send(
        broker,
        TOPIC,
        count,
        lambda number: [("penstock-deliver-at", b"%d" % (first_ms + number * 1000 // DUE_PER_S))],
    )
    is_in_time = time.time() * 1000 < first_ms
    late_ms = sorted(_read_lateness(broker, end_offsets, count))
    shares = {f"p{share}": round(late_ms[count * share // 100 - 1]) for share in (50, 90, 99)}
    return {
        "due_per_s": DUE_PER_S,
        "count": count,
        "sent_before_the_first_was_due": is_in_time,
        "least": round(late_ms[0]),
        **shares,
        "most": round(late_ms[-1]),
    }


def _read_lateness(
    broker: penstock.Broker, starts: list[TopicPartition], count: int
) -> list[float]:
    consumer = _consumer(broker)
    consumer.assign(starts)
    late_ms: list[float] = []
    while len(late_ms) < count:
        messages = consumer.consume(1000, timeout=1)
        read_ms = time.time() * 1000
        late_ms += (read_ms - message.timestamp()[1] for message in messages if not message.error())
    consumer.close()
    return late_ms


def _end_offsets(broker: penstock.Broker) -> list[TopicPartition]:
    consumer = _consumer(broker)
    starts = []
    for partition in range(PARTITIONS):
        tp = TopicPartition(TOPIC, partition, OFFSET_BEGINNING)
        _, end_offset = consumer.get_watermark_offsets(tp)
        starts.append(TopicPartition(TOPIC, partition, end_offset))
    consumer.close()
    return starts


def _consumer(broker: penstock.Broker) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
        }
    )


def _send(
    broker: penstock.Broker, topic: str, count: int, headers_of: Callable[[int], Headers]
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    failures: list[object] = []
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    VALUE,
                    headers=headers_of(number),
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                break
        producer.poll(0)
    assert producer.flush(600) == 0
    assert not failures, failures[0]


def _delay(delay_ms: int) -> Headers:
    return [("penstock-delay-ms", b"%d" % delay_ms)]


def _memory(broker: penstock.Broker) -> int:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * 4096
