"""What the delivery guarantees are worth, shown by kill -9: run it, it needs nothing else.

Starts a broker, sends it payments, and has each of the programs beside this one read them: killed
in the worst moment, between acting on a message and committing it, and started again. Prints what
was lost or doubled, and checks it: the exit code is 0 only if all of it is as promised.
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
PATIENCE_S = 60


class Promise(NamedTuple):
    program: str
    lost: list[str]
    doubled: list[str]


PROMISES = [
    Promise("at_most_once.py", lost=[UNLUCKY], doubled=[]),
    Promise("at_least_once.py", lost=[], doubled=[UNLUCKY]),
    Promise("exactly_once.py", lost=[], doubled=[]),
    Promise("exactly_once_in_a_table.py", lost=[], doubled=[]),
]


def main() -> None:
    started = time.monotonic()
    with penstock.Broker() as broker, tempfile.TemporaryDirectory() as scratch:
        send(broker)
        for promise in PROMISES:
            output = str(Path(scratch, promise.program).with_suffix(".out"))
            if promise.program == "exactly_once.py":
                output = LEDGER_TOPIC
            kill_in_worst_moment(promise.program, broker.bootstrap_servers, output)
            run(promise.program, broker.bootstrap_servers, output)
            check(promise, read_ledger(broker.bootstrap_servers, output))
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


def send(broker: penstock.Broker) -> None:
    broker.create_topic("payments", partitions=1)
    broker.create_topic(LEDGER_TOPIC, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for payment in PAYMENTS:
            producer.send("payments", payment)
    print(f"- {len(PAYMENTS)} payments are sent; each program is killed over {UNLUCKY!r}\n")


def kill_in_worst_moment(program: str, bootstrap: str, output: str) -> None:
    with subprocess.Popen(
        command(program, bootstrap, output),
        env={**os.environ, "WORST_MOMENT": UNLUCKY},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"now\n":  # at its end at the latest
            raise SystemExit(f"{program} ended before the worst moment came")
        process.kill()


def run(program: str, bootstrap: str, output: str) -> None:
    subprocess.run(command(program, bootstrap, output), check=True, timeout=PATIENCE_S)


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
        timeout_s=2,
    ) as consumer:
        return [(message.value or b"").decode() for message in consumer]


def check(promise: Promise, ledger: list[str]) -> None:
    counts = Counter(ledger)
    lost = [payment for payment in PAYMENTS if payment not in counts]
    doubled = [payment for payment in PAYMENTS if counts[payment] > 1]
    print(f"  {promise.program:26} lost: {tell(lost):12} doubled: {tell(doubled)}")
    if (lost, doubled) != (promise.lost, promise.doubled):
        raise SystemExit(f"{promise.program} promises otherwise: {promise}")


def tell(payments: list[str]) -> str:
    return ", ".join(payments) or "none"


if __name__ == "__main__":
    main()
