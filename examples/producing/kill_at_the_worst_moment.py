"""Shows what producers guarantee when something breaks. Needs nothing else.

Runs each program of this folder six times, through a proxy that knows the worst two moments: before
a payment reaches the broker, and after the broker has stored it but before the producer learns it.
There the connection is cut, or the broker is killed and started again, or the producer is.
Prints and checks what was lost or stored twice: the exit code is 0 only if each guarantee holds.
"""

import enum
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from by_hand import PAYMENTS
from cut_connection import Cut, CuttingProxy

import penstock

HERE = Path(__file__).parent
UNLUCKY = PAYMENTS[5]
TIMEOUT_S = 60


class Fault(enum.Enum):
    CUT = "the connection is cut"
    BROKER = "the broker is killed"
    PRODUCER = "the producer is killed"


class Effect(NamedTuple):
    lost: list[str]
    duplicated: list[str]
    failed: list[str]  # as far as the producer knows; one that is killed knows nothing


NOTHING: list[str] = []
HELD = Effect(NOTHING, NOTHING, NOTHING)
LOST = Effect([UNLUCKY], NOTHING, NOTHING)
DUPLICATED = Effect(NOTHING, [UNLUCKY], NOTHING)
REPORTED_LOST = Effect([UNLUCKY], NOTHING, [UNLUCKY])
WRONGLY_REPORTED = Effect(NOTHING, NOTHING, [UNLUCKY])
# What happens before the append, and before the answer.
GUARANTEES = {
    ("at_most_once.py", Fault.CUT): (REPORTED_LOST, WRONGLY_REPORTED),
    ("at_most_once.py", Fault.BROKER): (REPORTED_LOST, WRONGLY_REPORTED),
    ("at_most_once.py", Fault.PRODUCER): (LOST, HELD),
    ("at_least_once.py", Fault.CUT): (HELD, DUPLICATED),
    ("at_least_once.py", Fault.BROKER): (HELD, DUPLICATED),
    ("at_least_once.py", Fault.PRODUCER): (HELD, DUPLICATED),
    ("exactly_once.py", Fault.CUT): (HELD, HELD),
    ("exactly_once.py", Fault.BROKER): (HELD, HELD),
    ("exactly_once.py", Fault.PRODUCER): (HELD, DUPLICATED),  # for one producer while it runs
}


def main() -> None:
    started = time.monotonic()
    with prepare() as stage:
        print(f"- each program sends {len(PAYMENTS)} payments; {UNLUCKY!r} has bad luck\n")
        for (program, fault), effects in GUARANTEES.items():
            for cut, expected in zip(Cut, effects, strict=True):
                effect = stage.run(program, fault, cut)
                show(program, fault, cut, effect)
                if effect != expected:
                    raise SystemExit(f"{program} should have had {expected}")
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


class Stage:
    """A broker, the proxy before it, and what is done to both while a program runs."""

    def __init__(self, broker: penstock.Broker, proxy: CuttingProxy, scratch: Path) -> None:
        self._broker = broker
        self._proxy = proxy
        self._scratch = scratch

    def run(self, program: str, fault: Fault, cut: Cut) -> Effect:
        topic = f"{Path(program).stem}.{fault.name.lower()}.{cut.name.lower()}"
        self._broker.create_topic(topic, partitions=1)
        command = [
            *(sys.executable, str(HERE / program), self._proxy.address, topic),
            str(self._scratch / topic),
        ]
        cuts = self._proxy.cuts
        running = Running(command)
        kills = {Fault.BROKER: self._broker.kill, Fault.PRODUCER: running.kill}
        self._proxy.cut_once(
            cut, UNLUCKY.encode(), lambda: self._wait_appended(topic), kills.get(fault)
        )
        failed = self._finish(running, fault)
        assert self._proxy.cuts == cuts + 1, "nothing was cut"
        stored = Counter(self._read(topic))
        return Effect(
            lost=[payment for payment in PAYMENTS if payment not in stored],
            duplicated=[payment for payment in PAYMENTS if stored[payment] > 1],
            failed=failed,
        )

    def _finish(self, running: "Running", fault: Fault) -> list[str]:
        """Starts the program, and again what was killed; what the program says has failed."""
        running.start()
        if fault is Fault.BROKER:
            self._proxy.wait_cut(TIMEOUT_S)
            self._broker.start()
        said = running.wait()
        if fault is Fault.PRODUCER:
            assert said == "", f"it was killed before its report: {said}"
            running.start()
            said = running.wait()
        failed = said.strip().partition("failed: ")[2]
        return [] if failed == "none" else [failed]

    def _wait_appended(self, topic: str) -> None:
        """Only then has the broker stored the unlucky payment, the last one so far."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._count(topic) <= PAYMENTS.index(UNLUCKY):
            assert time.monotonic() < deadline, "the broker has not stored the payment"

    def _count(self, topic: str) -> int:
        with penstock.Admin(self._broker.bootstrap_servers) as admin:
            (end,) = admin.list_offsets(topic).values()
            return end.offset or 0

    def _read(self, topic: str) -> list[str]:
        with penstock.Consumer(
            topic,
            bootstrap_servers=self._broker.bootstrap_servers,
            from_beginning=True,
            timeout_s=TIMEOUT_S,
        ) as consumer:
            stored = islice(consumer, self._count(topic))
            return [(message.value or b"").decode() for message in stored]


class Running:
    """A program in a process of its own, which is started again after a kill."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def wait(self) -> str:
        """What it printed until it ended."""
        assert self._process is not None
        with self._process as process:
            return process.communicate(timeout=TIMEOUT_S)[0]


@contextmanager
def prepare() -> Iterator[Stage]:
    """The broker tells its clients the proxy's address, so that all connections go through it."""
    proxy = CuttingProxy()
    port = find_port()
    proxy.forward_to(port)
    config = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    with (
        tempfile.TemporaryDirectory() as scratch,
        penstock.Broker(listen=f"127.0.0.1:{port}", config=config) as broker,
    ):
        yield Stage(broker, proxy, Path(scratch))
        proxy.close()


def find_port() -> int:
    """A free port outside the range from which the system assigns ports."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def show(program: str, fault: Fault, cut: Cut, effect: Effect) -> None:
    lost, duplicated, failed = (", ".join(payments) or "none" for payments in effect)
    print(
        f"  {program:16} {fault.value:22} {cut.value:17} lost: {lost:9} duplicated: {duplicated:9} "
        f"failed, says the producer: {failed}"
    )


if __name__ == "__main__":
    main()
