"""Shows the delivery guarantees with kill -9. Needs nothing else.

Starts a broker, sends payments, and runs each program in this folder: it is killed at the worst
moment, between processing a message and committing it, and started again. Prints and checks which
messages were lost or duplicated: the exit code is 0 only if each guarantee holds.
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import penstock

HERE = Path(__file__).parent
PAYMENTS = [f"payment {number}" for number in range(10)]
UNLUCKY = PAYMENTS[5]
LEDGER_TOPIC = "ledger"
TIMEOUT_S = 60


class Guarantee(NamedTuple):
    program: str
    lost: list[str]
    duplicated: list[str]


GUARANTEES = [
    Guarantee("at_most_once.py", lost=[UNLUCKY], duplicated=[]),
    Guarantee("at_least_once.py", lost=[], duplicated=[UNLUCKY]),
    Guarantee("exactly_once.py", lost=[], duplicated=[]),
    Guarantee("exactly_once_in_a_table.py", lost=[], duplicated=[]),
]


def main() -> None:
    started = time.monotonic()
    with penstock.Broker() as broker, tempfile.TemporaryDirectory() as scratch:
        send(broker)
        for guarantee in GUARANTEES:
            output = str(Path(scratch, guarantee.program).with_suffix(".out"))
            if guarantee.program == "exactly_once.py":
                output = LEDGER_TOPIC
            kill_in_worst_moment(guarantee.program, broker.bootstrap_servers, output)
            run(guarantee.program, broker.bootstrap_servers, output)
            check(guarantee, read_ledger(broker.bootstrap_servers, output))
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


def send(broker: penstock.Broker) -> None:
    broker.create_topic("payments", partitions=1)
    broker.create_topic(LEDGER_TOPIC, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for payment in PAYMENTS:
            producer.send("payments", payment)
    print(f"- {len(PAYMENTS)} payments are sent; each program is killed at {UNLUCKY!r}\n")


def kill_in_worst_moment(program: str, bootstrap: str, output: str) -> None:
    with subprocess.Popen(
        command(program, bootstrap, output),
        env={**os.environ, "WORST_MOMENT": UNLUCKY},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"now\n":  # returns at the latest when the process ends
            raise SystemExit(f"{program} ended before the worst moment")
        process.kill()


def run(program: str, bootstrap: str, output: str) -> None:
    subprocess.run(command(program, bootstrap, output), check=True, timeout=TIMEOUT_S)


def command(program: str, bootstrap: str, output: str) -> list[str]:
    return [sys.executable, str(HERE / program), bootstrap, output]


def read_ledger(bootstrap: str, output: str) -> list[str]:
    if output == LEDGER_TOPIC:
        return read_committed(bootstrap)
    content = Path(output).read_bytes()
    if not content.startswith(b"SQLite"):
        return content.decode().splitlines()
    with closing(sqlite3.connect(output)) as ledger:
        return [payment for (payment,) in ledger.execute("SELECT payment FROM ledger")]


def read_committed(bootstrap: str) -> list[str]:
    with penstock.Consumer(
        LEDGER_TOPIC,
        bootstrap_servers=bootstrap,
        from_beginning=True,
        isolation="read_committed",
        timeout_s=5,
    ) as consumer:
        return [(message.value or b"").decode() for message in consumer]


def check(guarantee: Guarantee, ledger: list[str]) -> None:
    counts = Counter(ledger)
    lost = [payment for payment in PAYMENTS if payment not in counts]
    duplicated = [payment for payment in PAYMENTS if counts[payment] > 1]
    print(f"  {guarantee.program:26} lost: {show(lost):12} duplicated: {show(duplicated)}")
    if (lost, duplicated) != (guarantee.lost, guarantee.duplicated):
        raise SystemExit(f"{guarantee.program} should have had: {guarantee}")


def show(payments: list[str]) -> str:
    return ", ".join(payments) or "none"


if __name__ == "__main__":
    main()
