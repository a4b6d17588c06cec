"""confluent-kafka (librdkafka) as a member of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.clients.groups.member import HEARTBEAT_MS, CommitRefused, Order, Place, Read

_PASSING = (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED)
_BATCH = 50


class Member:
    def join(
        self, order: Order, gained: Callable[[Iterable[Place]], None],
        lost: Callable[[Iterable[Place]], None],
    ) -> None:  # fmt: skip
        self._consumer = Consumer(_settings(order))

        def on_lost(_: Any, places: list[TopicPartition]) -> None:
            lost((tp.topic, tp.partition) for tp in places)

        self._consumer.subscribe(
            order.topics if order.pattern is None else [order.pattern],
            on_assign=lambda _, places: gained((tp.topic, tp.partition) for tp in places),
            on_revoke=on_lost,
            on_lost=on_lost,
        )

    def poll(self, timeout_s: float) -> list[Read]:
        found = []
        for message in self._consumer.consume(_BATCH, timeout_s):
            error = message.error()
            if error is None:
                value: Any = message.value()
                place: Any = (
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    value.decode(),
                )
                found.append(Read._make(place))
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
        return found

    def commit(self, offsets: dict[Place, int], metadata: str) -> None:
        places = [TopicPartition(*place, offset, metadata) for place, offset in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise CommitRefused(str(error)) from error
        for answer in answers or ():
            if answer.error is not None:
                raise CommitRefused(str(answer.error))

    def committed(self, places: Sequence[Place]) -> list[tuple[int, str | None] | None]:
        found = self._consumer.committed([TopicPartition(*place) for place in places], timeout=60)
        return [None if tp.offset < 0 else (tp.offset, tp.metadata or "") for tp in found]

    def leave(self) -> None:
        self._consumer.close()


def _settings(order: Order) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": order.bootstrap,
        "group.id": order.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 400,
        "fetch.wait.max.ms": 50,
        "group.protocol": order.protocol,
    }
    if order.protocol == "classic":
        settings["session.timeout.ms"] = order.session_ms
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        if order.assignor is not None:
            settings["partition.assignment.strategy"] = order.assignor
    elif order.assignor is not None:
        settings["group.remote.assignor"] = order.assignor
    if order.instance is not None:
        settings["group.instance.id"] = order.instance
    return settings
