"""Rebuilds a shard's state from its log, in steps that yield the event loop.

Reads to the log end offset, beyond the high watermark, because records that a former leader
acknowledged may lie there. Then waits until all of it is committed, so that no reply shows state
that could still be lost.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from penstock.coordinators.runtime.dependencies import CoordinatorLog, Report
from penstock.model.errors import ErrorCode

Entry = TypeVar("Entry")
EntryRead = TypeVar("EntryRead", covariant=True)

STEP_S = 0.002  # of decoding, before the event loop is yielded
ENTRIES_PER_CLOCK_CHECK = 16
COMMIT_WAIT_MS = 10_000  # per attempt, for the high watermark
MAX_LINES = 20  # about damage, per load


class LoadStopped(Exception):
    """The partition is no longer led here, or the shard is no longer needed."""


class Reader(Protocol[EntryRead]):
    """Decodes entries from a log's bytes. None is not an entry, only a point where loading may
    yield."""

    def read(self, data: bytes) -> Iterator[EntryRead | None]: ...

    def rest(self) -> Iterator[EntryRead | None]:
        """Entries that it holds back until everything is read."""


async def load(
    partition: int,
    load_entry: Callable[[Entry], None],
    *,
    log: CoordinatorLog,
    new_reader: Callable[[Report], Reader[Entry]],
    chunk_bytes: int,
    is_wanted: Callable[[], bool],
    report: Report,
) -> int:
    """Replays everything; returns the offset up to which it did, which is committed by then."""
    bounded_report = _BoundedReport(report)
    reader = new_reader(bounded_report)
    position = log.ends(partition).start
    while position < log.ends(partition).end:
        chunk = await log.read(partition, position, chunk_bytes)
        _check(is_wanted)
        await _replay(reader.read(chunk.batches), load_entry, is_wanted)
        # Compaction can leave a gap at the end of the log, so that no read reaches its end offset.
        if chunk.end_offset <= position:
            break
        position = chunk.end_offset
        _check(is_wanted)
    await _replay(reader.rest(), load_entry, is_wanted)
    position = log.ends(partition).end
    await _wait_committed(partition, position, log, is_wanted)
    _check(is_wanted)
    bounded_report.finish()
    return position


async def _replay(
    entries: Iterator[Entry | None],
    load_entry: Callable[[Entry], None],
    is_wanted: Callable[[], bool],
) -> None:
    step_ends_s = time.monotonic() + STEP_S
    for number, entry in enumerate(entries):
        if entry is not None:
            load_entry(entry)
        if number % ENTRIES_PER_CLOCK_CHECK == 0 and time.monotonic() >= step_ends_s:
            await asyncio.sleep(0)
            _check(is_wanted)
            step_ends_s = time.monotonic() + STEP_S


async def _wait_committed(
    partition: int, offset: int, log: CoordinatorLog, is_wanted: Callable[[], bool]
) -> None:
    while log.ends(partition).committed < offset:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        log.when_committed(
            partition, offset, timeout_ms=COMMIT_WAIT_MS, done=partial(_resolve, done)
        )
        await done
        _check(is_wanted)


def _resolve(done: "asyncio.Future[ErrorCode]", code: ErrorCode) -> None:
    if not done.done():
        done.set_result(code)


def _check(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise LoadStopped


class _BoundedReport:
    """Passes on the first lines and counts the rest."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lines = 0

    def __call__(self, line: str) -> None:
        self._lines += 1
        if self._lines <= MAX_LINES:
            self._report(line)

    def finish(self) -> None:
        if self._lines > MAX_LINES:
            self._report(f"{self._lines - MAX_LINES} more damaged records or batches were skipped")
