"""Brings a shard's state up from its log, in steps that leave the event loop to others.

Reads to the log's end, beyond the high watermark: what a former leader has acknowledged may lie
there. Then waits until that is committed, so that nothing is shown that could still be lost.
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

TURN_S = 0.002  # of decoding, before others get the loop
ENTRIES_BETWEEN_LOOKS = 16  # at the clock
COMMIT_WAIT_MS = 10_000  # at a time, for the high watermark
MAX_LINES = 20  # about damage, per load


class LoadStopped(Exception):
    """The partition is not led here any more, or the shard is not wanted."""


class Reader(Protocol[EntryRead]):
    """Makes entries of a log's bytes; None among them is nothing: a place to stop for a moment."""

    def read(self, data: bytes) -> Iterator[EntryRead | None]: ...

    def rest(self) -> Iterator[EntryRead | None]:
        """What it has kept back until everything is read."""


async def load(
    partition: int,
    take: Callable[[Entry], None],
    *,
    log: CoordinatorLog,
    new_reader: Callable[[Report], Reader[Entry]],
    chunk_bytes: int,
    is_wanted: Callable[[], bool],
    report: Report,
) -> int:
    """Replays everything; the offset up to which it did, which is committed."""
    said = _Bounded(report)
    reader = new_reader(said)
    position = log.ends(partition).start
    while position < log.ends(partition).end:
        chunk = await log.read(partition, position, chunk_bytes)
        _check(is_wanted)
        await _replay(reader.read(chunk.batches), take, is_wanted)
        # A log that ends in a gap, as compaction leaves them, has an end that no read reaches.
        if chunk.end_offset <= position:
            break
        position = chunk.end_offset
        _check(is_wanted)
    await _replay(reader.rest(), take, is_wanted)
    position = log.ends(partition).end
    await _wait_committed(partition, position, log, is_wanted)
    _check(is_wanted)
    said.finish()
    return position


async def _replay(
    entries: Iterator[Entry | None], take: Callable[[Entry], None], is_wanted: Callable[[], bool]
) -> None:
    turn_ends_s = time.monotonic() + TURN_S
    for number, entry in enumerate(entries):
        if entry is not None:
            take(entry)
        if number % ENTRIES_BETWEEN_LOOKS == 0 and time.monotonic() >= turn_ends_s:
            await asyncio.sleep(0)
            _check(is_wanted)
            turn_ends_s = time.monotonic() + TURN_S


async def _wait_committed(
    partition: int, offset: int, log: CoordinatorLog, is_wanted: Callable[[], bool]
) -> None:
    while log.ends(partition).committed < offset:
        told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        log.when_committed(partition, offset, timeout_ms=COMMIT_WAIT_MS, done=partial(_tell, told))
        await told
        _check(is_wanted)


def _tell(told: "asyncio.Future[ErrorCode]", code: ErrorCode) -> None:
    if not told.done():
        told.set_result(code)


def _check(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise LoadStopped


class _Bounded:
    """A report that says the first lines and counts the rest."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lines = 0

    def __call__(self, line: str) -> None:
        self._lines += 1
        if self._lines <= MAX_LINES:
            self._report(line)

    def finish(self) -> None:
        if self._lines > MAX_LINES:
            self._report(f"{self._lines - MAX_LINES} more records or batches were passed over")
