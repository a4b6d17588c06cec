"""Keeps Spark's Python processes quick between tasks: takes what they have imported out of the
garbage collector's view.

Spark collects garbage after every task and every call. With PyArrow and numba loaded, that takes 30
to 80 ms each time, which the next task or call of the process waits for. Does nothing in a user's
own process.
"""

import gc
import os
import sys

_IN_WORKER = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")  # Spark sets it
# What is garbage later, but was in use when it was hidden, stays: so this must not happen often.
_MAX_TIMES = 10


def settle() -> None:
    """Call it when a process has done something for Spark: whatever that imported stays."""
    if os.environ.get(_IN_WORKER[0]) == _IN_WORKER[1]:
        _heap.settle()


class _Heap:
    """Of one process; a fork goes on with a copy."""

    def __init__(self) -> None:
        self._modules = 0  # when it was settled last
        self._times = 0

    def settle(self) -> None:
        if len(sys.modules) == self._modules or self._times == _MAX_TIMES:
            return
        self._modules = len(sys.modules)
        self._times += 1
        gc.collect()  # garbage must not be hidden
        gc.freeze()


_heap = _Heap()
