"""The steps of the Python clients, on top of the few calls that each client implements.

A program of this folder gets its plan as JSON, and prints a line `ok <step>` for each step that
succeeded. Invariant: the checks are the same for every client.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

PER_CODEC = 30
PARTITIONS = 3
READ_TIMEOUT_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RETENTION = ("retention.ms", "86400000")


class Message(NamedTuple):
    partition: int
    offset: int
    key: str
    value: str
    codec: str  # value of the header `codec`


IsEnd = Callable[[list[Message]], bool]


class SmokeClient(Protocol):
    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        """Creates the topic with the config RETENTION."""

    def replicas(self, topic: str) -> list[int]:
        """The number of replicas of each partition."""

    def setting(self, topic: str, name: str) -> str: ...

    def produce(self, topic: str, word: str, codec: str, count: int) -> None:
        """Sends `count` messages from `messages_of`, to the partitions that the client chooses."""

    def read(self, topic: str, group: str, is_end: IsEnd) -> list[Message]:
        """Reads committed records in a group, commits their offsets and leaves the group."""

    def transact(self, transactional_id: str, topic: str, words: dict[str, bool]) -> None:
        """Runs one transaction of ten messages per word; it is aborted where the value is False."""

    def group_state(self, group: str) -> str: ...

    def committed(self, group: str, topic: str) -> dict[int, int]: ...

    def end_offsets(self, topic: str) -> dict[int, int]: ...

    def delete_topic(self, topic: str) -> None: ...

    def list_topics(self) -> list[str]: ...


def messages_of(word: str, count: int) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    """Key, value and headers."""
    return [
        (f"key-{number}".encode(), f"{word}-{number}".encode(), [("codec", word.encode())])
        for number in range(count)
    ]


class Smoke:
    """Runs the plan's steps with one client."""

    def __init__(self, client: SmokeClient, plan: dict[str, Any]) -> None:
        self._client = client
        self._plan = plan
        prefix = plan["prefix"]
        self._orders, self._payments = f"{prefix}-orders", f"{prefix}-payments"
        self._group = f"{prefix}-group"

    def topics(self) -> None:
        replication = self._plan["replication"]
        for topic, partitions in ((self._orders, PARTITIONS), (self._payments, 1)):
            self._client.create_topic(topic, partitions, replication)
        assert self._client.replicas(self._orders) == [replication] * PARTITIONS
        name, value = RETENTION
        assert self._client.setting(self._orders, name) == value

    def produce(self) -> None:
        for codec in CODECS:
            self._client.produce(self._orders, codec, codec, PER_CODEC)

    def group(self) -> None:
        messages = self._client.read(self._orders, self._group, at_least(len(CODECS) * PER_CODEC))
        assert values(messages) == named(PER_CODEC, *CODECS)
        for message in messages:
            codec, _, number = message.value.partition("-")
            assert (message.key, message.codec) == (f"key-{number}", codec), message

    def resume(self) -> None:
        self._client.produce(self._orders, "later", "none", PER_CODEC)
        messages = self._client.read(self._orders, self._group, at_least(PER_CODEC))
        assert values(messages) == named(PER_CODEC, "later")

    def transactions(self) -> None:
        words = {"first": True, "dropped": False, "second": True}
        self._client.transact(self._payments, self._payments, words)
        seen = self._client.read(self._payments, f"{self._group}-payments", at_least(20))
        assert values(seen) == named(10, "first", "second")

    def admin(self) -> None:
        assert self._client.group_state(self._group).upper() == "EMPTY"
        ends = self._client.end_offsets(self._orders)
        assert self._client.committed(self._group, self._orders) == ends
        self._client.delete_topic(self._payments)
        assert self._payments not in self._client.list_topics()

    def compacted(self) -> None:
        table = self._plan["compacted"]
        last = self._client.end_offsets(table["topic"])[0] - 1

        def is_end(messages: list[Message]) -> bool:
            return bool(messages) and messages[-1].offset == last

        messages = self._client.read(table["topic"], f"{self._group}-table", is_end)
        assert len(messages) < table["written"], "nothing was cleaned"
        latest = {message.key: message.value for message in messages}
        assert latest == {
            f"key-{number}": f"round-{table['last_round']} of {number}"
            for number in range(table["keys"])
        }


def at_least(count: int) -> IsEnd:
    return lambda messages: len(messages) >= count


def values(messages: Sequence[Message]) -> list[str]:
    return sorted(message.value for message in messages)


def named(count: int, *words: str) -> list[str]:
    return sorted(f"{word}-{number}" for word in words for number in range(count))


def text_of(content: bytes | None) -> str:
    return "" if content is None else content.decode()


def run(make_client: Callable[[str], SmokeClient]) -> None:
    plan = json.loads(sys.argv[1])
    smoke = Smoke(make_client(plan["bootstrap"]), plan)
    for step in plan["steps"]:
        getattr(smoke, step)()
        print(f"ok {step}", flush=True)
