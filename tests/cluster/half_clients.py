"""Clients of a campaign of half messages, each a process of its own: to be killed at any time.

`producer SERVERS FIRST COUNT` sends halves, then their decisions; every fifth is left to a check.
`checker SERVERS` answers the questions of the group. Both print what they are about to do before
they do it, `begun` and `decided`, and after it `stored`, with numbers and, for a decision,
milliseconds since 1970.
"""

import random
import sys
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

TOPIC, GROUP = "orders", "shop"
BATCH = 50
DELAY_MS = 1_500
DELAYED_IN = 7  # every seventh is delayed from its commit on
CHECKED_IN = 5
SESSION_MS = 6_000  # then another checker takes over


def is_committed(number: int) -> bool:
    return number % 3 != 0


def delay_ms(number: int) -> int:
    return 0 if number % DELAYED_IN else DELAY_MS


def run_producer(servers: str, first: int, count: int) -> None:
    chance = random.Random(first)
    producer = new_producer(servers)
    for start in range(first, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        say("begun", start, numbers[-1])
        for number in numbers:
            produce(producer, f"{TOPIC}.half", b"%d" % number, headers=_headers(number))
        flush(producer)  # a half is stored before it is decided
        say("stored", start, numbers[-1])
        for number in numbers:
            if number % CHECKED_IN:
                _decide(producer, chance, number)
    flush(producer)
    say("done", first, count)


def _headers(number: int) -> Any:
    headers = [("penstock-half-id", b"%d" % number), ("penstock-half-group", GROUP.encode())]
    if delay_ms(number):
        headers.append(("penstock-delay-ms", b"%d" % delay_ms(number)))
    return headers


def _decide(producer: Producer, chance: random.Random, number: int) -> None:
    """Some twice, and some otherwise afterwards, which changes nothing."""
    decide(producer, number)
    again = chance.choice((None, is_committed(number), not is_committed(number)))
    if again is not None:
        produce(producer, f"{TOPIC}.half.decisions", _word(again), key=b"%d" % number)


def decide(producer: Producer, number: int) -> None:
    say("decided", number, int(time.time() * 1000))
    word = _word(is_committed(number))
    produce(producer, f"{TOPIC}.half.decisions", word, key=b"%d" % number)


def _word(is_commit: bool) -> bytes:
    return b"commit" if is_commit else b"rollback"


def run_checker(servers: str) -> None:
    producer = new_producer(servers)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
        }
    )
    consumer.subscribe([f"{GROUP}.half.checks"])
    while True:
        checks = [message for message in consumer.consume(100, timeout=0.2) if not message.error()]
        for message in checks:
            decide(producer, int(message.key() or b""))
        if checks:
            flush(producer)
            with suppress(KafkaException):  # the group rebalances: they are asked for again
                consumer.commit()  # only now: a killed checker has answered what it committed


def new_producer(servers: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
            "message.timeout.ms": 0,  # until it is acknowledged, or the test gives up
            "on_delivery": _exit_on_failure,
        }
    )


def _exit_on_failure(error: object, _: object) -> None:
    if error:
        sys.exit(f"a message was refused: {error}")


def produce(producer: Producer, topic: str, value: bytes, **given: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, **given)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def flush(producer: Producer) -> None:
    while producer.flush(1.0):
        pass


def say(word: str, *numbers: int) -> None:
    print(word, *numbers, flush=True)


if __name__ == "__main__":
    role, servers, *numbers = sys.argv[1:]
    if role == "producer":
        run_producer(servers, int(numbers[0]), int(numbers[1]))
    else:
        run_checker(servers)
