"""kafka-python as a group member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from kafka.consumer.subscription_state import ConsumerRebalanceListener  # type: ignore[import-untyped]
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.sticky.sticky_assignor import (  # type: ignore[import-untyped]
    StickyPartitionAssignor,
)
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]
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
    "cooperative-sticky": CooperativeStickyAssignor,
}
_JOIN_S = 2.0


class Member:
    def join(
        self, command: JoinCommand, gained: Callable[[Iterable[TopicAndPartition]], None],
        lost: Callable[[Iterable[TopicAndPartition]], None],
    ) -> None:  # fmt: skip
        self._consumer = KafkaConsumer(**_settings(command))
        self._listener = _Listener(gained, lost)
        if command.pattern is not None:
            self._consumer.subscribe(pattern=command.pattern, listener=self._listener)
        else:
            self._consumer.subscribe(command.topics, listener=self._listener)

    def poll(self, timeout_s: float) -> list[Read]:
        # Joining restarts with each poll, so it must finish within one.
        patience_s = timeout_s if self._listener.has_joined else _JOIN_S
        fetched = self._consumer.poll(timeout_ms=round(patience_s * 1000))
        return [
            Read(record.topic, record.partition, record.offset, record.value.decode())
            for records in fetched.values()
            for record in records
        ]

    def commit(self, offsets: dict[TopicAndPartition, int], metadata: str) -> None:
        wanted = {
            TopicPartition(*tp): OffsetAndMetadata(offset, metadata, -1)
            for tp, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted)
        except KafkaError as error:
            raise CommitRefused(repr(error)) from error

    def committed(self, places: Sequence[TopicAndPartition]) -> list[tuple[int, str | None] | None]:
        fetched = [self._consumer.committed(TopicPartition(*tp), metadata=True) for tp in places]
        return [None if offset is None else (offset.offset, offset.metadata) for offset in fetched]

    def leave(self) -> None:
        self._consumer.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # untyped
    def __init__(
        self,
        gained: Callable[[Iterable[TopicAndPartition]], None],
        lost: Callable[[Iterable[TopicAndPartition]], None],
    ) -> None:
        self.has_joined = False
        self._gained = gained
        self._lost = lost

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.has_joined = True
        self._gained((tp.topic, tp.partition) for tp in assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.has_joined = False
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
