"""Keeps a query's lease while this process works for it: a task that writes, or a commit. A task
also introduces its micro-batch to the driver's keeper, in case the batch outlives its tasks."""

import asyncio
import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.sink.exactly_once.lease import renewal_interval_ms
from penstock.spark.sink.exactly_once.lease_log import (
    Introduction,
    introduce,
    renew_lease,
)

_STOPPED = "T"
_INTRODUCTIONS = 2  # the leader alone acknowledges them, so that one may get lost
_ATTEMPTS = 12  # two in an interval: after these a batch without signs of life is over
_log = logging.getLogger(__name__)


@contextmanager
def keeping_lease(client: BlockingClient, query: str, abandoned_after_ms: int) -> Iterator[None]:
    """Renews the query's lease at intervals, the first time after one."""
    interval_ms = renewal_interval_ms(abandoned_after_ms)
    renewing = client.start(lambda cluster: _keep_renewing(cluster, query, interval_ms))
    try:
        yield
    finally:
        renewing.cancel()


def introduce_later(
    client: BlockingClient, introduction: Introduction, abandoned_after_ms: int
) -> None:
    """Introduces a batch that takes longer than an interval, if necessary after the task has ended:
    this process waits for the next one. A later batch of the query says that this one is over."""
    interval_s = renewal_interval_ms(abandoned_after_ms) / 1000
    previous = _introductions.pop(introduction.query, None)
    if previous is not None:
        previous.cancel()
    _introductions[introduction.query] = client.start(
        lambda cluster: _introduce(cluster, introduction, interval_s)
    )


async def _introduce(client: ClusterClient, introduction: Introduction, interval_s: float) -> None:
    missing = _INTRODUCTIONS
    for _ in range(_ATTEMPTS):
        await asyncio.sleep(interval_s / 2)
        try:
            await introduce(client, introduction, timeout_ms=round(interval_s * 1000))
        except (ClientError, TimeoutError) as error:
            _log.warning("cannot introduce query %s to its driver: %s", introduction.query, error)
            continue
        missing -= 1
        if not missing:
            return


_introductions: dict[str, Future[None]] = {}  # by query, of its latest batch


async def _keep_renewing(client: ClusterClient, query: str, interval_ms: int) -> None:
    parent = os.getppid()
    while True:
        await asyncio.sleep(interval_ms / 1000)
        if os.getppid() != parent:
            return  # Spark's process is gone, so nobody will commit this one's work
        if is_stopped(parent) or is_stopped(_find_parent(parent)):
            continue
        try:
            await renew_lease(client, query, timeout_ms=interval_ms)
        except (ClientError, TimeoutError) as error:
            _log.warning("cannot renew the lease of query %s: %s", query, error)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped this process: the daemon that forked this worker, or the JVM
    that works through it. False where /proc does not say."""
    return _stat(pid)[:1] == [_STOPPED]


def _find_parent(pid: int) -> int:
    """0: unknown."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _stat(pid: int) -> list[str]:
    """The fields after the process's name, which may hold anything: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
