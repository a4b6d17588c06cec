"""A transactional client in a process of its own, so that it can be killed: `python -m
tests.clients.transactions.worker CLIENT HOST:PORT`.

One JSON command per line in, one JSON result per line out; an adapter drives the client.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

ADAPTERS = {
    "confluent-kafka": "tests.clients.transactions.worker_confluent_kafka",
    "aiokafka": "tests.clients.transactions.worker_aiokafka",
}
INSTANCE = "only-member"  # static membership, so that it rejoins soon after a kill
TAKE_MOST = 20  # several records, but few enough that a test takes several transactions


class ClientFailed(Exception):
    """The client failed; `kind` is its own name for the reason."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Taken(NamedTuple):
    partition: int
    offset: int
    value: str


class Adapter(Protocol):
    """Has at most one producer and one consumer. Every call blocks until it is done."""

    def open(self, transactional_id: str, timeout_ms: int) -> None:
        """Initializes a producer with this transactional id, which becomes the current one."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, values: Sequence[str], delay_ms: int) -> None:
        """`delay_ms`: 0, or how long after the commit they are delivered."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def read(self, topic: str, partition: int, isolation: str) -> list[str]:
        """All records visible at this isolation level now, read with a separate consumer."""

    def join(self, group: str, topic: str) -> None:
        """Reads committed records as a group member, from the committed offsets."""

    def take(self) -> list[Taken]:
        """Returns the next records: at least one, at most TAKE_MOST."""

    def send_offsets(self) -> None:
        """Adds the offsets of the taken records to the transaction."""

    def close(self) -> None:
        """Closes both, as a regular shutdown does; the next command may open others."""


def delay_headers(delay_ms: int) -> list[tuple[str, bytes]]:
    return [("penstock-delay-ms", b"%d" % delay_ms)] if delay_ms else []


def answer(adapter: Adapter, command: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": getattr(adapter, command.pop("op"))(**command)}
    except ClientFailed as error:
        return {"kind": error.kind, "error": str(error)}


def main() -> None:
    client, bootstrap = sys.argv[1:]
    adapter: Adapter = import_module(ADAPTERS[client]).Worker(bootstrap)
    for line in sys.stdin:
        print(json.dumps(answer(adapter, json.loads(line))), flush=True)
    adapter.close()


if __name__ == "__main__":
    # Imported by its real name, so that adapters raise the same ClientFailed that is caught here.
    import_module("tests.clients.transactions.worker").main()
