"""Work on Spark that Ctrl-C and SIGTERM end in order."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.pipeline_progress import note
from penstock.model.stop_requests import StopRequests


@contextmanager
def stopped_by_signals(stop: threading.Event, message: str) -> Iterator[None]:
    """The first signal sets `stop`, which the work polls; a second one ends the process at once.
    Spark's own handler, which interrupts whatever runs, is suspended."""

    requests = StopRequests()

    def ask(number: int, _: object) -> None:
        if requests.is_urgent(time.monotonic()):
            os._exit(128 + number)
        if not stop.is_set():
            stop.set()
            note(message)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
