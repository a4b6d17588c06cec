"""A transactional client in a process of its own, so that it can be killed:
`python -m tests.clients.transactions.worker CLIENT HOST:PORT`.

One JSON order a line in, one JSON answer a line out; which client obeys is the adapter's matter.
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
INSTANCE = "only-member"  # back at once after a kill
TAKE_MOST = 20  # enough to be several, and few enough for several transactions


class ClientFailed(Exception):
    """The client said no; `kind` is its own name for the reason."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Taken(NamedTuple):
    partition: int
    offset: int
    value: str


class Adapter(Protocol):
    """One producer and one consumer at most. Every call waits until it is done."""

    def open(self, transactional_id: str, timeout_ms: int) -> None:
        """Become the newest producer of this id."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def read(self, topic: str, partition: int, isolation: str) -> list[str]:
        """All that this isolation level sees now, with a consumer of its own."""

    def join(self, group: str, topic: str) -> None:
        """Read committed records as the group's member, from where the group is."""

    def take(self) -> list[Taken]:
        """The next records: at least one, at most TAKE_MOST."""

    def send_offsets(self) -> None:
        """What was taken becomes part of the transaction."""

    def close(self) -> None:
        """Both, as a program that ends well does; the next order may open others."""


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
    # Under its real name, so that adapters raise the same ClientFailed that is caught here.
    import_module("tests.clients.transactions.worker").main()
