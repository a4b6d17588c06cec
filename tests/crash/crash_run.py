"""A log under a scenario that may crash anywhere, and the states that a crash may leave.

`Run` acts on the engine. Before each step it notes what a crash within the step may leave, and
after it what is certain: after a kill everything written, after a power cut everything durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.crash.harness import (
    CONFIG,
    NOW_MS,
    PARTITION,
    Seen,
    Step,
    Timeline,
    aborted_in,
    create,
    data_batch,
    read_all,
    skipped,
    start,
)

from penstock.config.log_config import LogConfig
from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.batch import read_header, stamp_offset_and_epoch
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo
from penstock.storage.errors import OffsetOutOfRange, StorageError
from penstock.storage.group_commit import Background, Item
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk

Result = TypeVar("Result")
LONG_MS = 10**9


class Deferred:
    """A flusher whose rounds wait until `drain`."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def run(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for item in items:
            function(item)

    def drain(self) -> None:
        while self._waiting:
            self._waiting.pop(0)()


@dataclass(slots=True)
class Expectations:
    """The timelines that the log may be on after a crash; the last one is the current."""

    kill: list[Timeline] = field(default_factory=lambda: [Timeline()])
    power: list[Timeline] = field(default_factory=lambda: [Timeline()])
    absent: set[str] = field(default_factory=set)  # crashes that may leave no log
    present: bool = True  # whether the log may exist

    def check(self, seen: Seen | None, *, after: str, clean: bool) -> None:
        if seen is None:
            assert after in self.absent, f"the log is gone after a {after}"
            return
        assert self.present, "a deleted log came back"
        timelines = self.kill if after == "kill" else self.power
        if clean:
            timelines = [_whole(timelines[-1])]
        problems = [timeline.find_problem(seen) for timeline in timelines]
        assert None in problems, f"after a {after}: {problems}"
        _check_aborted(timelines[problems.index(None)], seen)

    def both(self) -> tuple[Timeline, Timeline]:
        return self.kill[-1], self.power[-1]

    def branch(self, change: Callable[[Timeline], Timeline]) -> None:
        """Adds the timeline on which the log is about to continue."""
        for timelines in (self.kill, self.power):
            timelines.append(change(timelines[-1].copy()))

    def settle(self, after: str) -> None:
        """Drops all timelines but the current one."""
        timelines = self.kill if after == "kill" else self.power
        del timelines[:-1]


def _whole(timeline: Timeline) -> Timeline:
    whole = timeline.copy()
    whole.min_end = max((read_header(batch).next_offset for batch in whole.batches), default=0)
    return whole


def _check_aborted(timeline: Timeline, seen: Seen) -> None:
    """Checks that consumers skip exactly the batches of aborted transactions."""
    written = timeline.between(0, seen.log_end_offset)
    assert skipped(seen.batches, seen.aborted) == skipped(seen.batches, aborted_in(written))


class Run:
    """One engine on one disk, with its expectations. A SimulatedCrash may end it anywhere."""

    make: Callable[..., Any] = SegmentedEngine

    def __init__(
        self,
        disk: SimulatedDisk,
        expectations: Expectations,
        config: LogConfig = CONFIG,
        background: Background | None = None,
    ) -> None:
        self.disk = disk
        self.expectations = expectations
        self.config = config
        self.background = background
        self._now_ms = NOW_MS
        self.engine: SegmentedEngine
        self.log: SegmentedLog

    def start(self) -> None:
        self.engine, logs = start(
            self.disk, self.config, background=self.background, make=type(self).make
        )
        if PARTITION in logs:
            self.log = logs[PARTITION]
            self._note_durable()

    def create(self) -> None:
        self.expectations.absent = {"kill", "power"}
        self.log = create(self.engine, self.config)
        self.expectations.absent = {"power"}

    def append(self, step: Step) -> None:
        stamped = bytearray(step.batch)
        stamp_offset_and_epoch(stamped, 0, self.log.log_end_offset, step.epoch)
        for timeline in self.expectations.both():
            timeline.batches.append(bytes(stamped))
        item = AppendItem(
            self.log, memoryview(bytearray(step.batch)), LeaderEpoch(step.epoch), step.origin
        )
        (result,) = self.engine.append([item], NOW_MS)
        assert isinstance(result, LogAppendInfo), result
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.expectations.kill[-1].min_end = self.log.log_end_offset
        self._note_durable()

    def append_more(self, count: int, *, epoch: int = 3, first: int = 50) -> None:
        for number in range(first, first + count):
            self.append(Step(data_batch(number), epoch))

    def follow(self, *numbers: int, epoch: int) -> None:
        """Appends as a follower, with any leader epoch; starts no epoch itself."""
        for number in numbers:
            batch = data_batch(number)
            stamp_offset_and_epoch(batch, 0, self.log.log_end_offset, epoch)
            for timeline in self.expectations.both():
                timeline.batches.append(bytes(batch))
            item = AppendItem(
                self.log, memoryview(batch), LeaderEpoch(-1), AppendOrigin.REPLICATION
            )
            (result,) = self.engine.append([item], NOW_MS)
            assert isinstance(result, LogAppendInfo), result
            self.log.advance_high_watermark(self.log.log_end_offset)
            self.expectations.kill[-1].min_end = self.log.log_end_offset

    def flush(self) -> None:
        answers: list[StorageError | None] = []
        upto = self.log.log_end_offset

        def done(error: StorageError | None) -> None:
            answers.append(error)
            if error is None:
                assert self.log.durable_offset >= upto
                self._note_flushed(upto)
            else:
                assert isinstance(error, OffsetOutOfRange), error  # its offset was truncated

        self.engine.flush(self.log, upto, done)
        if self.background is None:
            assert answers == [None]

    def _note_flushed(self, upto: Offset) -> None:
        self.expectations.absent.discard("power")
        self.expectations.settle("power")
        timeline = self.expectations.power[-1]
        timeline.min_end = max(timeline.min_end, upto)

    def _note_durable(self) -> None:
        """Everything below the durable offset must survive, whether a flush was requested or
        not."""
        timeline = self.expectations.power[-1]
        timeline.min_end = max(timeline.min_end, self.log.durable_offset)
        if self.log.durable_offset > 0:
            self.expectations.absent.discard("power")

    def truncate_to(self, offset: int) -> None:
        if offset < self.log.log_start_offset:
            self.restart_at(offset)  # as the log promises for an offset below its start
            return
        self._cut(lambda t: _below(t, offset), lambda: self.log.truncate_to(Offset(offset), NOW_MS))

    def restart_at(self, offset: int) -> None:
        new = lambda t: Timeline([], {offset}, offset)  # noqa: E731
        self._cut(new, lambda: self.log.restart_at(Offset(offset), NOW_MS))

    def _cut(self, change: Callable[[Timeline], Timeline], act: Callable[[], None]) -> None:
        self.expectations.branch(change)
        for timelines in (self.expectations.kill, self.expectations.power):
            for old in timelines[:-1]:
                old.min_end = min(old.min_end, timelines[-1].min_end, *old.starts)
                old.starts |= timelines[-1].starts  # the log may crash while it restarts there
        act()
        self.expectations.settle("kill")

    def delete_before(self, offset: int) -> None:
        for timeline in self.expectations.both():
            timeline.starts.add(offset)
        self.log.delete_before(Offset(offset))

    def run_jobs(self, *names: str) -> None:
        """Runs the named jobs, long after their last run, so that all are due."""
        due = [*self.engine.due_jobs(self._now_ms), *self.engine.due_jobs(self._now_ms + LONG_MS)]
        self._now_ms += LONG_MS
        jobs = [job for job in due if job.name.startswith(names)]
        assert len(jobs) == len(names)
        for job in jobs:
            job.run(self.on_owner)
        assert not self.engine.statistics().failed_directories

    def checkpoint(self) -> None:
        self.run_jobs("checkpoint")
        for timeline in self.expectations.both():
            timeline.starts = {self.log.log_start_offset}

    def possible_starts(self) -> set[int]:
        """Where retention may let the log start."""
        return {segment.base_offset for segment in self.log.segments} | {self.log.log_end_offset}

    def retain(self) -> None:
        bases = self.possible_starts()
        for timeline in self.expectations.both():
            timeline.starts |= bases
            # A power cut may lose the end of the log, and its start with it.
        self.run_jobs("retention")
        self.expectations.kill[-1].starts = {self.log.log_start_offset}
        self.expectations.kill[-1].min_end = self.log.log_end_offset
        self._note_durable()

    def on_owner(self, function: Callable[[], Result]) -> Result:
        return function()

    def compact(self, states: Sequence[Sequence[bytes]]) -> None:
        """`states` are the logs that the pass may leave: the old one first, the new one last."""
        for timelines in (self.expectations.kill, self.expectations.power):
            (old,) = timelines
            timelines[:] = [Timeline(list(b), set(old.starts), old.min_end) for b in states]
        self.run_jobs("compaction")
        self.expectations.settle("kill")
        self.expectations.settle("power")

    def delete(self) -> None:
        self.expectations.absent = {"kill", "power"}
        self.engine.delete(PARTITION)

    def close(self) -> None:
        self.engine.close()
        for timeline in self.expectations.both():
            timeline.min_end = self.log.log_end_offset
            timeline.starts = {self.log.log_start_offset}
        self.expectations.settle("power")
        self.expectations.absent.clear()


class RecordingRun(Run):
    """Records the state of the log after every visit of a job to the owner."""

    def __init__(self, disk: SimulatedDisk, expectations: Expectations, config: LogConfig) -> None:
        super().__init__(disk, expectations, config)
        self.states: list[tuple[bytes, ...]] = []

    def on_owner(self, function: Callable[[], Result]) -> Result:
        result = function()
        state = tuple(read_all(self.log, self.disk))
        if not self.states or self.states[-1] != state:
            self.states.append(state)
        return result


def _below(timeline: Timeline, offset: int) -> Timeline:
    kept = [batch for batch in timeline.batches if read_header(batch).last_offset < offset]
    end = max((read_header(batch).next_offset for batch in kept), default=0)
    return Timeline(kept, timeline.starts, min(timeline.min_end, end))
