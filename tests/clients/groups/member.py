"""A member of a group in a process of its own: `python -m tests.clients.groups.member CLIENT HOST`.

One JSON command per line in, one JSON event per line out; an adapter drives the client. Invariant:
records are reported before they are committed, so that a kill in between loses none.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

TopicAndPartition = tuple[str, int]
POLL_S = 0.05
ADAPTERS = {
    "confluent-kafka": "tests.clients.groups.member_confluent_kafka",
    "kafka-python": "tests.clients.groups.member_kafka_python",
    "aiokafka": "tests.clients.groups.member_aiokafka",
}
HEARTBEAT_MS = 300  # the response tells a classic member of a rebalance


class JoinCommand(NamedTuple):
    """The arguments of `join`."""

    bootstrap: str
    group: str
    topics: list[str]
    pattern: str | None
    assignor: str | None
    instance: str | None
    protocol: str  # classic or consumer
    session_ms: int
    commits: bool  # whether to commit after every poll that returns records


class Read(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: str


class CommitRefused(Exception):
    """The coordinator rejected a commit; the text is the client's."""


class Adapter(Protocol):
    def join(
        self, command: JoinCommand, gained: Callable[[Iterable[TopicAndPartition]], None],
        lost: Callable[[Iterable[TopicAndPartition]], None],
    ) -> None: ...  # fmt: skip

    def poll(self, timeout_s: float) -> list[Read]: ...

    def commit(self, offsets: dict[TopicAndPartition, int], metadata: str) -> None:
        """Waits for the response; raises CommitRefused if it is an error."""

    def committed(self, places: Sequence[TopicAndPartition]) -> list[tuple[int, str | None] | None]:
        """Offset and metadata of each partition; None if the client does not return metadata."""

    def leave(self) -> None: ...


class MemberLoop:
    def __init__(self, make: Callable[[], Adapter], bootstrap: str) -> None:
        self._make = make
        self._bootstrap = bootstrap
        self._orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._adapter: Adapter | None = None
        self._commits = False
        self._owes_commit = False
        self._owned: set[TopicAndPartition] = set()
        self._handed: dict[TopicAndPartition, int] = {}  # next offsets of owned partitions

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._report("ready")
        while True:
            try:
                command = self._orders.get(block=self._adapter is None)
            except queue.Empty:
                self._poll()
                continue
            if command is None:
                break
            self._execute(command)
        if self._adapter is not None:
            self._adapter.leave()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._orders.put(json.loads(line))
        self._orders.put(None)

    def _execute(self, command: dict[str, Any]) -> None:
        op = command.pop("op")
        if op == "join":
            self._join(JoinCommand(bootstrap=self._bootstrap, **command))
        elif op == "commit":
            self._commit(command["metadata"])
        elif op == "committed":
            self._report_committed([(topic, number) for topic, number in command["places"]])
        else:
            assert op == "leave", op
            self._leave()

    def _join(self, command: JoinCommand) -> None:
        self._owned, self._handed = set(), {}
        self._commits = command.commits
        self._adapter = self._make()
        self._adapter.join(command, self._on_gained, self._on_lost)

    def _leave(self) -> None:
        adapter, self._adapter = self._adapter, None
        assert adapter is not None
        adapter.leave()
        self._report("left")

    def _poll(self) -> None:
        assert self._adapter is not None
        records = self._adapter.poll(POLL_S)
        if records:
            self._report("read", records=records)
            for record in records:
                # A rebalance within the poll may have revoked partitions whose records it still
                # returns.
                if (record.topic, record.partition) in self._owned:
                    self._handed[record.topic, record.partition] = record.offset + 1
        if self._commits and (records or self._owes_commit):
            self._commit("")

    def _commit(self, metadata: str) -> None:
        assert self._adapter is not None
        offsets = dict(self._handed)
        self._owes_commit = False
        if not offsets:
            self._report("refused", error="nothing that was read is owned any more")
            return
        try:
            self._adapter.commit(offsets, metadata)
        except CommitRefused as error:
            self._owes_commit = True  # for the partitions that are still owned after the next poll
            self._report("refused", error=str(error))
        else:
            self._report("committed", offsets=[[*tp, offset] for tp, offset in offsets.items()])

    def _report_committed(self, places: list[TopicAndPartition]) -> None:
        assert self._adapter is not None
        self._report("found", offsets=self._adapter.committed(places))

    def _on_gained(self, places: Iterable[TopicAndPartition]) -> None:
        self._owned.update(places)
        self._report("owned", places=sorted(self._owned))

    def _on_lost(self, places: Iterable[TopicAndPartition]) -> None:
        for tp in places:
            self._owned.discard(tp)
            self._handed.pop(tp, None)
        self._report("owned", places=sorted(self._owned))

    def _report(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "time_ns": time.monotonic_ns(), **fields})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main() -> None:
    client, bootstrap = sys.argv[1:]
    MemberLoop(import_module(ADAPTERS[client]).Member, bootstrap).run()


if __name__ == "__main__":
    # Imported by its real name, so that adapters raise the same CommitRefused that is caught here.
    import_module("tests.clients.groups.member").main()
