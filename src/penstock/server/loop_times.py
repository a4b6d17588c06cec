"""The clock and the processor time of the event loop's thread, at start-up and later."""

import time
from typing import NamedTuple


class LoopTimes(NamedTuple):
    monotonic_s: float
    busy_s: float  # processor time of the calling thread


def read_loop_times() -> LoopTimes:
    return LoopTimes(time.monotonic(), time.thread_time())
