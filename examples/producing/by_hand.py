"""What the programs of this folder send, and how they are run from the command line."""

import inspect
import sys
from collections.abc import Callable
from typing import NamedTuple

import penstock

PAYMENTS = [f"payment {number}" for number in range(10)]


class Report(NamedTuple):
    """What the producer believes: a payment that failed may be stored all the same."""

    sent: list[str]
    failed: list[str]


def send_all(producer: penstock.Producer, topic: str) -> Report:
    report = Report([], [])
    for payment in PAYMENTS:
        try:
            producer.send_and_wait(topic, payment)
            report.sent.append(payment)
        except penstock.SendFailed:
            report.failed.append(payment)
    return report


def run(send_payments: Callable[[str, str], Report]) -> None:
    arguments = sys.argv[1:]
    if len(arguments) not in (1, 2):
        print(inspect.getdoc(sys.modules["__main__"]), file=sys.stderr)
        raise SystemExit(2)
    try:
        report = send_payments(arguments[0], (arguments[1:] or ["payments"])[0])
    except penstock.ClientError as error:
        raise SystemExit(f"{error}\nIt needs a broker: `penstock up` starts one.") from None
    print(f"sent: {len(report.sent)}, failed: {', '.join(report.failed) or 'none'}")
    if report.failed:
        raise SystemExit(1)
