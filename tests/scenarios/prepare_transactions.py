"""Prepares transactions and is killed:
`python -m tests.scenarios.prepare_transactions SERVERS TOPIC LEFT NAME...`.

Prints, as JSON, the prepared state that decides each NAME; then waits to be killed. LEFT is the
transactional id of an ordinary transaction with TIMEOUT_MS that is left open.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from penstock.client.cluster import ClusterClient
from penstock.client.raw_transaction import RawTransaction
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import Record, build_batch

PARTITIONS = 2
TIMEOUT_MS = 4_000  # enough for two writes on a slow machine


async def write(transaction: RawTransaction, topic: str, value: str) -> None:
    for number in range(PARTITIONS):
        batch = build_batch([Record(Offset(0), 1_000, None, value.encode(), ())])
        await transaction.write(TopicPartition(topic, number), batch)


async def prepare(servers: str, topic: str, left: str, names: list[str]) -> dict[str, object]:
    async with ClusterClient(servers) as client:
        states: dict[str, object] = {}
        for name in names:
            transaction = await RawTransaction.begin(
                client, name, two_phase=True, transaction_timeout_ms=TIMEOUT_MS
            )
            await write(transaction, topic, name)
            states[name] = await transaction.prepare()
        ordinary = await RawTransaction.begin(client, left, transaction_timeout_ms=TIMEOUT_MS)
        await write(ordinary, topic, left)
        return states


def main() -> None:
    servers, topic, left, *names = sys.argv[1:]
    print(json.dumps(asyncio.run(prepare(servers, topic, left, names))), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
