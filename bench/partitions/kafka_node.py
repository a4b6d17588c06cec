"""Kafka with the methods of `penstock.Broker` that this benchmark uses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from tests.interop.kafka_jars import KafkaJars

from bench.broker.nodes import Kafka, Node
from penstock.model.errors import ErrorCode
from penstock.protocol.records import Record, build_batch

_PROBE = "probe"


class KafkaNode:
    """It has started once a topic of its own takes a message."""

    def __init__(self, jars: KafkaJars, directory: Path) -> None:
        self._node = Node(Kafka(jars), directory)

    @property
    def pid(self) -> int:
        return self._node.pid

    @property
    def bootstrap_servers(self) -> str:
        return self._node.bootstrap

    def start(self) -> Self:
        self._node.start()
        self.create_topic(_PROBE, partitions=1)
        return self

    def stop(self) -> None:
        self._node.stop()

    def kill(self) -> None:
        self._node.kill()

    def create_topic(self, name: str, *, partitions: int) -> None:
        wire = self._node.connect()
        created = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        while wire.create_topic(name, partitions) not in created:
            time.sleep(0.01)
        batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"first", ())]))
        while wire.produce(name, 0, batch) != ErrorCode.NONE:
            time.sleep(0.01)
        wire.close()
