"""confluent-kafka (librdkafka) as a transactional client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.clients.transactions.worker import (
    INSTANCE,
    TAKE_MOST,
    ClientFailed,
    Taken,
    delay_headers,
)

TIMEOUT_S = 180.0


class Worker:
    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._reached: dict[int, TopicPartition] = {}

    def open(self, transactional_id: str, timeout_ms: int) -> None:
        settings = {
            **self._common,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "linger.ms": 1,
        }
        self._producer = Producer(settings)
        self._step(lambda producer: producer.init_transactions(TIMEOUT_S))

    def begin(self) -> None:
        self._step(lambda producer: producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Sequence[str], delay_ms: int) -> None:
        headers: list[tuple[str, str | bytes | None]] = [*delay_headers(delay_ms)]
        failures: list[KafkaError] = []
        producer = self._get_producer()
        for value in values:
            producer.produce(
                topic,
                value,
                partition=partition,
                headers=headers,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        left = producer.flush(TIMEOUT_S)
        assert left == 0, f"{left} records were not answered"
        if failures:
            raise ClientFailed(failures[0].name(), failures[0].str())

    def commit(self) -> None:
        self._step(lambda producer: producer.commit_transaction(TIMEOUT_S))

    def abort(self) -> None:
        self._step(lambda producer: producer.abort_transaction(TIMEOUT_S))

    def read(self, topic: str, partition: int, isolation: str) -> list[str]:
        consumer = Consumer(
            {
                **self._common,
                "group.id": "none: partitions are assigned",  # required by the constructor
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = [_value_of(record) for record in _read_to_end(consumer)]
        consumer.close()
        return values

    def join(self, group: str, topic: str) -> None:
        self._reached = {}
        self._consumer = Consumer(
            {
                **self._common,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "group.instance.id": INSTANCE,
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.subscribe([topic])

    def take(self) -> list[Taken]:
        assert self._consumer is not None
        records: list[Any] = []
        while not records:
            records = [
                message for message in self._consumer.consume(TAKE_MOST, 0.2) if _is_record(message)
            ]
        for record in records:
            reached = TopicPartition(record.topic(), record.partition(), record.offset() + 1)
            self._reached[record.partition()] = reached
        return [Taken(record.partition(), record.offset(), _value_of(record)) for record in records]

    def send_offsets(self) -> None:
        assert self._consumer is not None
        places, group = list(self._reached.values()), self._consumer.consumer_group_metadata()
        self._step(lambda producer: producer.send_offsets_to_transaction(places, group, TIMEOUT_S))

    def close(self) -> None:
        consumer, self._consumer, self._producer = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _get_producer(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def _step(self, call: Callable[[Producer], None]) -> None:
        """Retries if librdkafka calls the error retriable."""
        producer = self._get_producer()
        while True:
            try:
                return call(producer)
            except KafkaException as error:
                reason = error.args[0]
                if not reason.retriable():
                    raise ClientFailed(reason.name(), reason.str()) from error


def _read_to_end(consumer: Consumer) -> Iterator[Any]:
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"nothing came in {TIMEOUT_S} s"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        if _is_record(message):
            yield message


def _is_record(message: Any) -> bool:
    error = message.error()
    if error is not None and not error.retriable():
        raise KafkaException(error)
    return error is None


def _value_of(message: Any) -> str:
    return str(message.value().decode())
