"""What the programs of this folder send, and how they are run from the command line.

With a progress file, a program that is killed and started again goes on where the file says.
"""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import penstock

PAYMENTS = [f"payment {number}" for number in range(10)]


class Report(NamedTuple):
    """What the producer believes: a payment that failed may be stored all the same."""

    sent: list[str]
    failed: list[str]


class Progress:
    """The payments that are not sent again after a restart, in a file, or nowhere."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def remaining(self) -> list[str]:
        if self._file is None or not self._file.exists():
            return PAYMENTS
        noted = self._file.read_text().splitlines()
        return [payment for payment in PAYMENTS if payment not in noted]

    def note(self, payment: str) -> None:
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(f"{payment}\n")


SendPayments = Callable[[str, str, Progress], Report]


def send_each(
    producer: penstock.Producer, topic: str, progress: Progress, *, note_first: bool
) -> Report:
    """Sends one payment after the other. `note_first` decides what a kill in between does: a
    payment that was noted first may be lost, one that is noted last may be sent twice."""
    report = Report([], [])
    for payment in progress.remaining():
        if note_first:
            progress.note(payment)
        try:
            producer.send_and_wait(topic, payment)
        except penstock.SendFailed:
            report.failed.append(payment)
            continue
        report.sent.append(payment)
        if not note_first:
            progress.note(payment)
    return report


def run(send_payments: SendPayments) -> None:
    arguments = sys.argv[1:]
    if len(arguments) not in (1, 2, 3):
        print(inspect.getdoc(sys.modules["__main__"]), file=sys.stderr)
        raise SystemExit(2)
    bootstrap, topic, progress = (arguments + ["payments", ""][len(arguments) - 1 :])[:3]
    try:
        report = send_payments(bootstrap, topic, Progress(Path(progress) if progress else None))
    except penstock.ClientError as error:
        raise SystemExit(f"{error}\nIt needs a broker: `penstock up` starts one.") from None
    print(f"sent: {len(report.sent)}, failed: {', '.join(report.failed) or 'none'}")
    if report.failed:
        raise SystemExit(1)
