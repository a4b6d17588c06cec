"""Exactly once into something other than a topic: process idempotently, then commit.

The output stores partition and offset of each message in the transaction that adds it, so that a
message that is delivered again after a crash changes nothing.
Run it with `python exactly_once_in_a_table.py BOOTSTRAP OUTPUT`.
"""

import sqlite3
from contextlib import closing

from by_hand import run
from worst_moment import worst_moment

import penstock

TABLE = """CREATE TABLE IF NOT EXISTS ledger
    (partition INTEGER, offset INTEGER, payment TEXT, PRIMARY KEY (partition, offset))"""


def main(bootstrap: str, output: str) -> None:
    with (
        penstock.Consumer(
            "payments",
            bootstrap_servers=bootstrap,
            group="exactly-once-in-a-table",
            from_beginning=True,
            auto_commit=False,
            timeout_s=5,
            config={"group.instance.id": "worker-1"},  # rejoins at once after a restart
        ) as consumer,
        closing(sqlite3.connect(output)) as ledger,
    ):
        ledger.execute(TABLE)
        for message in consumer:
            row = (message.partition, message.offset, (message.value or b"").decode())
            with ledger:
                ledger.execute("INSERT OR IGNORE INTO ledger VALUES (?, ?, ?)", row)
            worst_moment(message)
            consumer.commit()


if __name__ == "__main__":
    run(main)
