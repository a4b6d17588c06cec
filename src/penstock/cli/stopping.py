"""Work on Spark that Ctrl-C and SIGTERM end in order."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.pipeline_progress import note


@contextmanager
def stopped_by_signals(stop: threading.Event, message: str) -> Iterator[None]:
    """The first signal sets `stop`, which the work looks at; a second one is not waited for.
    Spark's own handler, which cuts through whatever runs, is put aside."""

    def ask(number: int, _: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        note(message)

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
