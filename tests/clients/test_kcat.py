"""kcat against the broker: one process per call, and topics that are created by metadata
requests."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.clients.scenarios import (
    HEADERS,
    READ_TIMEOUT_S,
    SETTLE_TIMEOUT_S,
    ClientScenarios,
    Headers,
    Message,
    Received,
    Start,
)
from tests.clients.tools import ToolMissingError, get_kcat
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import Say

pytestmark = pytest.mark.xdist_group("client-kcat")

KEY_DELIMITER = b"|"
END = -1  # in place of a timestamp: the end of the partition


class Kcat:
    sets_timestamps = False

    def __init__(self, program: str, bootstrap_servers: str) -> None:
        self._common = [program, "-q", "-b", bootstrap_servers]

    def create_topic(self, topic: str, partitions: int) -> None:
        """kcat has no call for this: it requests metadata, and the broker creates the topic."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while self._partition_count(topic) != partitions:
            assert time.monotonic() < deadline, f"{topic} was not created by being asked for"

    def _partition_count(self, topic: str) -> int:
        query = self._run("-L", "-J", "-t", topic, "-X", "allow.auto.create.topics=true")
        topics: list[dict[str, Any]] = json.loads(query)["topics"]
        offset = [
            topic_data
            for topic_data in topics
            if topic_data["topic"] == topic and "error" not in topic_data
        ]
        return len(offset[0]["partitions"]) if offset else 0

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str,
        acks: str,
        headers: Headers = HEADERS,
    ) -> None:
        lines = [
            message.value if message.key is None else message.key + KEY_DELIMITER + message.value
            for message in messages
        ]
        options = ["-z", codec, "-X", f"acks={acks}", "-X", "linger.ms=200"]
        options += ["-K", KEY_DELIMITER.decode()]
        for name, value in headers:
            options += ["-H", f"{name}={value.decode()}"]
        self._run("-P", "-t", topic, *options, given=b"\n".join(lines))

    def end_offset(self, topic: str, partition: int) -> int:
        return self._query(topic, partition, END)

    def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._query(topic, partition, timestamp_ms)
        return offset if offset >= 0 else None

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Parses output such as `topic [0] offset 40`."""
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}")
        return int(answer.split()[-1])

    def read(self, topic: str, partition: int, start: Start, end_offset: int) -> list[Received]:
        first = "beginning"
        if start.timestamp_ms is not None:
            first = f"s@{start.timestamp_ms}"
        elif start.offset is not None:
            first = str(start.offset)
        options = ["-p", str(partition), "-o", first, "-e", "-X", "fetch.wait.max.ms=10"]
        records = self._run("-C", "-J", "-t", topic, *options)
        received = [_to_received(json.loads(line)) for line in records.splitlines()]
        return [
            received_message
            for received_message in received
            if received_message.offset < end_offset
        ]

    def _run(self, *arguments: str, given: bytes = b"") -> str:
        done = subprocess.run(
            [*self._common, *arguments],
            input=given,
            capture_output=True,
            timeout=READ_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


def _to_received(record: dict[str, Any]) -> Received:
    flat = record.get("headers", [])
    headers = tuple(
        (name, value.encode()) for name, value in zip(flat[::2], flat[1::2], strict=True)
    )
    key = record["key"]
    return Received(
        record["partition"],
        record["offset"],
        record["ts"],
        None if key is None else key.encode(),
        record["payload"].encode(),
        headers,
    )


@pytest.fixture(scope="module")
def client(broker: BrokerUnderTest, say: Say) -> Kcat:
    try:
        return Kcat(get_kcat(say), broker.bootstrap_servers)
    except ToolMissingError as error:
        pytest.skip(f"skipped: {error}")


class TestKcat(ClientScenarios):
    pass
