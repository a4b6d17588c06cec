"""Shows what producers guarantee when a connection breaks. Needs nothing else.

Runs each program of this folder twice, through a proxy that cuts its connection once: before a
payment reaches the broker, and after the broker has stored it but before the producer learns it.
Prints and checks what was lost or stored twice: the exit code is 0 only if each guarantee holds.
"""

import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from types import ModuleType
from typing import NamedTuple

import at_least_once
import at_most_once
import exactly_once
from by_hand import PAYMENTS, Report
from cut_connection import Cut, CuttingProxy

import penstock

UNLUCKY = PAYMENTS[5]
TIMEOUT_S = 60


class Effect(NamedTuple):
    lost: list[str]
    duplicated: list[str]
    failed: list[str]  # as far as the producer knows


NOTHING: list[str] = []
GUARANTEES = {
    (at_most_once, Cut.BEFORE_APPEND): Effect([UNLUCKY], NOTHING, [UNLUCKY]),
    (at_most_once, Cut.BEFORE_ANSWER): Effect(NOTHING, NOTHING, [UNLUCKY]),
    (at_least_once, Cut.BEFORE_APPEND): Effect(NOTHING, NOTHING, NOTHING),
    (at_least_once, Cut.BEFORE_ANSWER): Effect(NOTHING, [UNLUCKY], NOTHING),
    (exactly_once, Cut.BEFORE_APPEND): Effect(NOTHING, NOTHING, NOTHING),
    (exactly_once, Cut.BEFORE_ANSWER): Effect(NOTHING, NOTHING, NOTHING),
}


def main() -> None:
    started = time.monotonic()
    proxy = CuttingProxy()
    with behind(proxy), penstock.Admin(proxy.address) as admin:
        print(f"- each program sends {len(PAYMENTS)} payments; {UNLUCKY!r} has bad luck\n")
        for (program, cut), expected in GUARANTEES.items():
            outcome = run(program, cut, proxy, admin)
            show(program, cut, outcome)
            if outcome != expected:
                raise SystemExit(f"{program.__name__}, cut {cut.value}, should have had {expected}")
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


@contextmanager
def behind(proxy: CuttingProxy) -> Iterator[penstock.Broker]:
    """A broker that tells its clients the proxy's address, so that all connections go through."""
    port = find_port()
    proxy.forward_to(port)
    config = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    with penstock.Broker(listen=f"127.0.0.1:{port}", config=config) as broker:
        yield broker
        proxy.close()


def find_port() -> int:
    """A free port outside the range from which the system assigns ports."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def run(program: ModuleType, cut: Cut, proxy: CuttingProxy, admin: penstock.Admin) -> Effect:
    topic = f"{program.__name__}.{cut.name.lower()}"
    admin.create_topics(penstock.NewTopic(topic, partitions=1))

    def wait_appended() -> None:
        """Only then has the broker stored the unlucky payment, the last one so far."""
        deadline = time.monotonic() + TIMEOUT_S
        while count(admin, topic) <= PAYMENTS.index(UNLUCKY):
            assert time.monotonic() < deadline, "the broker has not stored the payment"

    proxy.cut_once(cut, UNLUCKY.encode(), wait_appended)
    cuts = proxy.cuts
    report: Report = program.send_payments(proxy.address, topic)
    assert proxy.cuts == cuts + 1, "the connection was not cut"
    stored = Counter(read(proxy.address, topic, count(admin, topic)))
    return Effect(
        lost=[payment for payment in PAYMENTS if payment not in stored],
        duplicated=[payment for payment in PAYMENTS if stored[payment] > 1],
        failed=report.failed,
    )


def count(admin: penstock.Admin, topic: str) -> int:
    (end,) = admin.list_offsets(topic).values()
    return end.offset or 0


def read(bootstrap: str, topic: str, records: int) -> list[str]:
    with penstock.Consumer(
        topic, bootstrap_servers=bootstrap, from_beginning=True, timeout_s=TIMEOUT_S
    ) as consumer:
        return [(message.value or b"").decode() for message in islice(consumer, records)]


def show(program: ModuleType, cut: Cut, outcome: Effect) -> None:
    lost, duplicated, failed = (", ".join(payments) or "none" for payments in outcome)
    print(
        f"  {program.__name__:14} cut {cut.value:18} lost: {lost:10} duplicated: {duplicated:10} "
        f"failed, says the producer: {failed}"
    )


if __name__ == "__main__":
    main()
