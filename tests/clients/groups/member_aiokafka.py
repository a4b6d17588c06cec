"""aiokafka as a group member. Its loop runs while it polls, which is nearly always."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (  # type: ignore[import-untyped]
    StickyPartitionAssignor,
)
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from tests.clients.groups.member import (
    HEARTBEAT_MS,
    CommitRefused,
    JoinCommand,
    Read,
    TopicAndPartition,
)

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Member:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def join(
        self, command: JoinCommand, gained: Callable[[Iterable[TopicAndPartition]], None],
        lost: Callable[[Iterable[TopicAndPartition]], None],
    ) -> None:  # fmt: skip
        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**_settings(command))
            listener = _Listener(gained, lost)
            if command.pattern is not None:
                consumer.subscribe(pattern=command.pattern, listener=listener)
            else:
                consumer.subscribe(command.topics, listener=listener)
            await consumer.start()
            return consumer

        self._consumer = self._runner.run(start())

    def poll(self, timeout_s: float) -> list[Read]:
        records = self._runner.run(self._consumer.getmany(timeout_ms=round(timeout_s * 1000)))
        return [
            Read(record.topic, record.partition, record.offset, record.value.decode())
            for records in records.values()
            for record in records
        ]

    def commit(self, offsets: dict[TopicAndPartition, int], metadata: str) -> None:
        wanted = {TopicPartition(*tp): (at, metadata) for tp, at in offsets.items()}
        try:
            self._runner.run(self._consumer.commit(wanted))
        except KafkaError as error:
            raise CommitRefused(repr(error)) from error

    def committed(self, places: Sequence[TopicAndPartition]) -> list[tuple[int, str | None] | None]:
        records = [self._runner.run(self._consumer.committed(TopicPartition(*p))) for p in places]
        return [None if offset is None else (offset, None) for offset in records]

    def leave(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # untyped
    def __init__(
        self,
        gained: Callable[[Iterable[TopicAndPartition]], None],
        lost: Callable[[Iterable[TopicAndPartition]], None],
    ) -> None:
        self._gained = gained
        self._lost = lost

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._gained((tp.topic, tp.partition) for tp in assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._lost((tp.topic, tp.partition) for tp in revoked)


def _settings(command: JoinCommand) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": command.bootstrap,
        "group_id": command.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": command.session_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "metadata_max_age_ms": 400,
        "fetch_max_wait_ms": 50,
        "group_instance_id": command.instance,
    }
    if command.assignor is not None:
        settings["partition_assignment_strategy"] = [_ASSIGNORS[command.assignor]]
    return settings
