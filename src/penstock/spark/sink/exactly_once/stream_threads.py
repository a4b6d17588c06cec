"""Finds Spark's driver among this process's ancestors, and which streaming queries it runs: each
has a thread in the driver's JVM for as long as it is active. Linux only; elsewhere there is no
driver.

A thread cannot be told from that of another query: the kernel keeps 15 characters of its name. It
is identified by its number and the time at which it began, which no later thread has.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

_NAME = "stream execution thread for"[:15]
_PROC = "/proc"
_MAX_BYTES = 4096
_MAX_ANCESTORS = 4  # daemon of Python workers, driver, and a launcher between them
_STARTED = 19  # the field of /proc/PID/stat after the name


class StreamThread(NamedTuple):
    number: int
    started: int  # ticks since the machine started


class Driver(NamedTuple):
    """Spark's driver, a JVM."""

    pid: int
    started: int

    def is_running(self) -> bool:
        return _find_started(f"{_PROC}/{self.pid}") == self.started

    def stream_threads(self) -> frozenset[StreamThread]:
        """One for each active query. Takes a millisecond: a JVM has hundreds of threads."""
        return frozenset(_stream_threads(self.pid))


def find_driver() -> Driver | None:
    """The driver that this process works for. It is found while it runs a query: see the module."""
    parent = os.getppid()
    if _drivers.get(parent) is None:
        _drivers.clear()
        driver = _search(parent)
        if driver is None:
            return None
        _drivers[parent] = driver
    return _drivers[parent]


def _search(pid: int) -> Driver | None:
    for _ in range(_MAX_ANCESTORS):
        started = _find_started(f"{_PROC}/{pid}")
        if started is None:
            return None
        if next(_stream_threads(pid), None) is not None:
            return Driver(pid, started)
        pid = _find_parent(pid)
    return None


_drivers: dict[int, Driver] = {}  # by the parent of this process, which changes when that ends


def _stream_threads(pid: int) -> Iterator[StreamThread]:
    for number in _list_threads(pid):
        folder = f"{_PROC}/{pid}/task/{number}"
        started = _find_started(folder) if _read(f"{folder}/comm").rstrip() == _NAME else None
        if started is not None:
            yield StreamThread(int(number), started)


def _list_threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"{_PROC}/{pid}/task")
    except OSError:
        return []


def _find_started(folder: str) -> int | None:
    """None: it has ended."""
    fields = _stat(folder)
    return int(fields[_STARTED]) if len(fields) > _STARTED else None


def _find_parent(pid: int) -> int:
    """0: it has ended."""
    fields = _stat(f"{_PROC}/{pid}")
    return int(fields[1]) if len(fields) > 1 else 0


def _stat(folder: str) -> list[str]:
    """The fields after the name, which may hold anything: state, parent, ..."""
    return _read(f"{folder}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    """Empty for what has ended. A driver has hundreds of threads, so this is the quickest way."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, _MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(file)
