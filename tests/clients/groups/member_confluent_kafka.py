"""confluent-kafka (librdkafka) as a group member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.clients.groups.member import (
    HEARTBEAT_MS,
    CommitRefused,
    JoinCommand,
    Read,
    TopicAndPartition,
)

_PASSING = (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED)
_BATCH = 50


class Member:
    def join(
        self, command: JoinCommand, gained: Callable[[Iterable[TopicAndPartition]], None],
        lost: Callable[[Iterable[TopicAndPartition]], None],
    ) -> None:  # fmt: skip
        self._consumer = Consumer(_settings(command))

        def on_lost(_: Any, places: list[TopicPartition]) -> None:
            lost((tp.topic, tp.partition) for tp in places)

        self._consumer.subscribe(
            command.topics if command.pattern is None else [command.pattern],
            on_assign=lambda _, places: gained((tp.topic, tp.partition) for tp in places),
            on_revoke=on_lost,
            on_lost=on_lost,
        )

    def poll(self, timeout_s: float) -> list[Read]:
        committed = []
        for message in self._consumer.consume(_BATCH, timeout_s):
            error = message.error()
            if error is None:
                value: Any = message.value()
                fields: Any = (
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    value.decode(),
                )
                committed.append(Read._make(fields))
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
        return committed

    def commit(self, offsets: dict[TopicAndPartition, int], metadata: str) -> None:
        places = [TopicPartition(*tp, offset, metadata) for tp, offset in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise CommitRefused(str(error)) from error
        for answer in answers or ():
            if answer.error is not None:
                raise CommitRefused(str(answer.error))

    def committed(self, places: Sequence[TopicAndPartition]) -> list[tuple[int, str | None] | None]:
        committed = self._consumer.committed([TopicPartition(*tp) for tp in places], timeout=60)
        return [None if tp.offset < 0 else (tp.offset, tp.metadata or "") for tp in committed]

    def leave(self) -> None:
        self._consumer.close()


def _settings(command: JoinCommand) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": command.bootstrap,
        "group.id": command.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 400,
        "fetch.wait.max.ms": 50,
        "group.protocol": command.protocol,
    }
    if command.protocol == "classic":
        settings["session.timeout.ms"] = command.session_ms
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        if command.assignor is not None:
            settings["partition.assignment.strategy"] = command.assignor
    elif command.assignor is not None:
        settings["group.remote.assignor"] = command.assignor
    if command.instance is not None:
        settings["group.instance.id"] = command.instance
    return settings
