"""Finds the Python processes of Spark's JVM in /proc, by what they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

WORKER = "pyspark.worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
PLANNER = "python_streaming_source_runner"


def find_workers(spark: SparkSession) -> list[int]:
    """The processes that run tasks, without the daemon that forks them."""
    return find_workers_of(_jvm(spark))


def find_workers_of(ancestor: int) -> list[int]:
    """Those that descend from this process."""
    daemons = [pid for pid, command in _descendants(ancestor) if WORKER in command]
    return [pid for daemon in daemons for pid, _ in _children(daemon)]


def find_executors_of(ancestor: int) -> list[int]:
    """The JVMs of executors that are separate processes."""
    return [pid for pid, command in _descendants(ancestor) if EXECUTOR in command]


def find_planners(spark: SparkSession) -> list[int]:
    """The processes that plan the batches of Python sources, one per streaming query."""
    daemons = [pid for pid, command in _descendants(_jvm(spark)) if PLANNER in command]
    return [pid for daemon in daemons for pid, _ in _children(daemon)] or daemons


def _jvm(spark: SparkSession) -> int:
    assert spark.sparkContext is not None
    gateway: Any = SparkContext._gateway
    pid: int = gateway.proc.pid
    return pid


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    for child, command in _children(pid):
        yield child, command
        yield from _descendants(child)


def _children(pid: int) -> list[tuple[int, str]]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [(number, _command(number)) for number in pids if _parent(number) == pid]


def _parent(pid: int) -> int | None:
    """The parent's id; None for a process that has just exited."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _command(pid: int) -> str:
    """The command line; empty for a process that has just exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
