"""A crash before every disk operation of a scenario, and within every write.

After each, the state that a kill leaves and several that a power cut may leave are recovered, and
compared with what the scenario knew at that moment.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
from tests.crash.crash_run import Deferred, Expectations, RecordingRun, Run
from tests.crash.harness import CONFIG, DATA, PARTITION, Counter, look, scenario, start
from tests.crash.recreated_partition import (
    RecreatedPartition,
    check_refused,
    written_beside_another,
)
from tests.profile import scaled

from penstock.config.log_config import LogConfig
from penstock.storage.partition_metadata import CLEAN_SHUTDOWN_FILE
from penstock.testing.simulated_disk import (
    CrashChoice,
    DiskOperation,
    KeepEverything,
    LoseEverything,
    OperationKind,
    SeededChoice,
    SimulatedCrash,
    SimulatedDisk,
)

Figure = Callable[[str, int], None]
Act = Callable[[Run], None]

# -- scenarios -------------------------------------------------------------------------------


def create_partition(run: Run) -> None:
    run.start()
    run.create()
    run.append_more(2)
    run.flush()
    run.append_more(1)


def append_and_flush(run: Run) -> None:
    run.start()
    run.append_more(2, epoch=3)
    run.flush()
    run.append_more(2, epoch=4)
    run.flush()
    run.append_more(1, epoch=4)


def roll(run: Run) -> None:
    run.start()
    run.append_more(11)


def a_whole_life(run: Run) -> None:
    run.start()
    run.create()
    for step in scenario():
        run.append(step)
    run.flush()
    run.close()


def roll_before_the_flusher_comes(run: Run) -> None:
    run.start()
    assert isinstance(run.background, Deferred)
    run.append_more(8)
    run.flush()
    run.append_more(9, first=60)
    run.background.drain()
    run.append_more(1, first=70)


def truncate_within_a_segment(run: Run) -> None:
    run.start()
    run.truncate_to(29)
    run.append_more(2, epoch=4)
    run.flush()
    run.append_more(1, epoch=4)


def truncate_across_segments_and_epochs(run: Run) -> None:
    run.start()
    run.truncate_to(9)
    run.append_more(12, epoch=5)
    run.flush()
    run.truncate_to(12)
    run.append_more(3, epoch=6)
    run.flush()


def truncate_what_is_below_the_recovery_point(run: Run) -> None:
    """Nothing is flushed after the truncation, so no segment that the old log had synced may be
    trusted."""
    run.start()
    assert isinstance(run.background, Deferred)
    run.truncate_to(12)
    run.append_more(20, epoch=5)


def truncate_while_a_flush_is_under_way(run: Run) -> None:
    run.start()
    assert isinstance(run.background, Deferred)
    run.append_more(2, epoch=4)
    run.flush()
    run.truncate_to(28)
    run.background.drain()
    run.follow(70, 71, 72, epoch=3)
    run.flush()
    run.background.drain()


def restart_ahead(run: Run) -> None:
    run.start()
    run.restart_at(100)
    run.append_more(3, epoch=5)
    run.flush()


def restart_behind_a_checkpointed_start(run: Run) -> None:
    run.start()
    run.delete_before(25)
    run.checkpoint()
    run.truncate_to(10)
    run.append_more(3, epoch=5)
    run.flush()


def delete_records(run: Run) -> None:
    run.start()
    run.delete_before(17)
    run.checkpoint()
    run.append_more(1)
    run.flush()


def retain(run: Run) -> None:
    run.start()
    run.retain()
    run.append_more(2)
    run.flush()


def delete_records_and_retain(run: Run) -> None:
    run.start()
    run.delete_before(28)
    run.retain()
    run.checkpoint()
    run.append_more(2)
    run.flush()


def stop_cleanly(run: Run) -> None:
    run.start()
    run.append_more(7)
    run.flush()
    for step in scenario()[11:12]:
        run.append(step)
    run.close()


def start_only(run: Run) -> None:
    run.start()
    run.append_more(1)
    run.flush()


def write_checkpoints(run: Run) -> None:
    run.start()
    run.append_more(3)
    run.flush()
    run.checkpoint()
    run.append_more(3)
    run.checkpoint()


def delete_partition(run: Run) -> None:
    run.start()
    run.delete()
    run.run_jobs("removal")


def delete_partition_while_a_flush_is_under_way(run: Run) -> None:
    run.start()
    assert isinstance(run.background, Deferred)
    run.append_more(9, epoch=4)
    run.delete()
    run.background.drain()
    assert not run.engine.statistics().failed_directories
    run.run_jobs("removal")


def delete_and_create_again(run: Run) -> None:
    run.start()
    assert isinstance(run, RecreatedPartition)
    run.delete_before(17)
    run.checkpoint()
    run.delete()
    run.create_again()
    run.append_more(4, epoch=5)
    run.append_to_other()
    run.flush()
    run.append_more(1, epoch=6)
    run.run_jobs("removal", "checkpoint")


def delete_create_again_and_stop(run: Run) -> None:
    run.start()
    assert isinstance(run, RecreatedPartition)
    run.delete()
    run.create_again()
    run.append_more(4, epoch=5)
    run.close()


def delete_and_create_again_while_a_flush_waits(run: Run) -> None:
    run.start()
    assert isinstance(run, RecreatedPartition)
    assert isinstance(run.background, Deferred)
    run.append_to_other()
    run.flush_other()
    run.append_more(9, epoch=4)
    waiting = run.flush_in_vain()
    run.delete()
    run.create_again()
    run.append_more(3, epoch=5)
    run.background.drain()
    check_refused(waiting)
    run.flush()
    run.background.drain()
    run.run_jobs("removal")


def delete_and_create_again_while_a_flush_runs(run: Run) -> None:
    run.start()
    assert isinstance(run, RecreatedPartition)
    assert isinstance(run.background, Deferred)
    run.append_more(1, epoch=4)
    running = run.flush_in_vain()
    run.append_to_other()
    run.flush_other()
    run.delete()
    run.create_again()
    run.append_more(3, epoch=5)
    run.run_jobs("removal")
    run.background.drain()
    check_refused(running)
    run.append_more(1, epoch=6)
    run.flush()
    run.background.drain()


def delete_and_create_again_while_checkpoints_are_written(run: Run) -> None:
    run.start()
    assert isinstance(run, RecreatedPartition)
    run.append_more(2)
    run.delete_before(25)
    run.between_visits(run.delete)
    run.between_visits(run.create_again)
    run.between_visits(lambda: run.append_more(2, epoch=5))
    run.run_jobs("checkpoint")
    run.append_more(2, epoch=5)
    run.flush()


def delete_and_create_again_during_retention(run: Run) -> None:
    run.start()
    assert isinstance(run, RecreatedPartition)
    run.append_more(9)
    for timeline in run.expectations.both():
        timeline.starts |= run.possible_starts()
    run.between_visits(run.delete)
    run.between_visits(run.create_again)
    run.between_visits(lambda: run.append_more(2, epoch=5))
    run.run_jobs("retention")
    run.append_more(1, epoch=5)
    run.flush()


def compact(run: Run) -> None:
    run.start()
    run.compact(_compaction_states())
    run.checkpoint()
    run.append_more(2)
    run.flush()


def compact_and_stop(run: Run) -> None:
    run.start()
    run.compact(_compaction_states())
    run.close()


@cache
def _compaction_states() -> list[tuple[bytes, ...]]:
    disk, expectations = _before(_closed)
    run = RecordingRun(disk.copy(), expectations, COMPACTING)
    run.start()
    run.run_jobs("compaction")
    assert len(run.states) >= 2, "nothing was compacted"
    assert len(run.states[-1]) < len(run.states[0])
    return run.states


# -- the disks they start on -------------------------------------------------------------------


def written(*, close: bool, kind: type[Run] = Run) -> tuple[SimulatedDisk, Expectations]:
    disk = SimulatedDisk(DATA)
    run = kind(disk, Expectations())
    run.start()
    run.create()
    for step in scenario():
        run.append(step)
    if close:
        run.close()
    return disk.survivor_of_kill(), run.expectations


def _empty() -> tuple[SimulatedDisk, Expectations]:
    return SimulatedDisk(DATA), Expectations(absent={"kill", "power"})


def _closed() -> tuple[SimulatedDisk, Expectations]:
    return written(close=True)


def _killed() -> tuple[SimulatedDisk, Expectations]:
    return written(close=False)


class Scenario(NamedTuple):
    act: Act
    before: Callable[[], tuple[SimulatedDisk, Expectations]]
    config: LogConfig = CONFIG
    is_deferred: bool = False
    kind: type[Run] = Run

    @property
    def name(self) -> str:
        kind = "-compacted" if self.config.compact else ""
        return f"{self.act.__name__}-{self.before.__name__.strip('_')}{kind}"


RETAINING = replace(CONFIG, retention_bytes=300)
COMPACTING = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
SCENARIOS = [
    Scenario(create_partition, _empty),
    Scenario(a_whole_life, _empty),
    Scenario(append_and_flush, _closed),
    Scenario(append_and_flush, _killed),
    Scenario(roll, _closed),
    Scenario(roll_before_the_flusher_comes, _closed, is_deferred=True),
    Scenario(roll_before_the_flusher_comes, _killed, is_deferred=True),
    Scenario(truncate_within_a_segment, _closed),
    Scenario(truncate_across_segments_and_epochs, _closed),
    Scenario(truncate_across_segments_and_epochs, _killed),
    # A compacted log may have gaps: recovery cannot tell them from those that a power cut leaves.
    Scenario(truncate_across_segments_and_epochs, _closed, COMPACTING),
    Scenario(truncate_what_is_below_the_recovery_point, _closed, is_deferred=True),
    Scenario(truncate_while_a_flush_is_under_way, _closed, is_deferred=True),
    Scenario(restart_ahead, _closed),
    Scenario(restart_behind_a_checkpointed_start, _closed),
    Scenario(delete_records, _closed),
    Scenario(retain, _closed, RETAINING),
    Scenario(delete_records_and_retain, _closed, RETAINING),
    Scenario(stop_cleanly, _closed),
    Scenario(stop_cleanly, _killed),
    Scenario(start_only, _closed),
    Scenario(start_only, _killed),
    Scenario(write_checkpoints, _killed),
    Scenario(delete_partition, _closed),
    Scenario(delete_partition_while_a_flush_is_under_way, _closed, is_deferred=True),
    Scenario(delete_and_create_again, written_beside_another, kind=RecreatedPartition),
    Scenario(delete_create_again_and_stop, written_beside_another, kind=RecreatedPartition),
    Scenario(
        delete_and_create_again_while_a_flush_waits,
        written_beside_another,
        is_deferred=True,
        kind=RecreatedPartition,
    ),
    Scenario(
        delete_and_create_again_while_a_flush_runs,
        written_beside_another,
        is_deferred=True,
        kind=RecreatedPartition,
    ),
    Scenario(
        delete_and_create_again_while_checkpoints_are_written,
        written_beside_another,
        kind=RecreatedPartition,
    ),
    Scenario(
        delete_and_create_again_during_retention,
        written_beside_another,
        RETAINING,
        kind=RecreatedPartition,
    ),
    Scenario(compact, _closed, COMPACTING),
    Scenario(compact_and_stop, _closed, COMPACTING),
]


# -- crashing ------------------------------------------------------------------------------


@cache
def _before(
    before: Callable[[], tuple[SimulatedDisk, Expectations]],
) -> tuple[SimulatedDisk, Expectations]:
    return before()


def _begin(scenario: Scenario) -> Run:
    disk, expectations = _before(scenario.before)
    copied = Expectations(
        [timeline.copy() for timeline in expectations.kill],
        [timeline.copy() for timeline in expectations.power],
        set(expectations.absent),
    )
    background = Deferred() if scenario.is_deferred else None
    return scenario.kind(disk.copy(), copied, scenario.config, background)


def _trace(scenario: Scenario) -> list[DiskOperation]:
    run = _begin(scenario)
    scenario.act(run)
    return list(run.disk.trace)


def _crash_points(trace: list[DiskOperation]) -> list[tuple[int, int | None]]:
    """Crashes before each operation, within each write, and after the last."""
    points: list[tuple[int, int | None]] = []
    for ordinal, operation in enumerate(trace):
        points.append((ordinal, None))
        if operation.kind is OperationKind.WRITE:
            points += [(ordinal, kept) for kept in _torn(operation.length)]
    return [*points, (len(trace), None)]


def _torn(length: int) -> list[int]:
    step = scaled(test=length, verify=max(1, length // 8), release=1)
    return sorted({1, *range(step, length, step), length - 1} & set(range(1, length)))


def _choices(ordinal: int, kept: int | None) -> list[CrashChoice]:
    """Fewer samples suffice for torn writes, which differ only in their last bytes."""
    count = scaled(test=1, verify=20, release=100)
    seeds = range(count if kept is None else count // 4)
    drawn = [SeededChoice(1000 * ordinal + seed) for seed in seeds]
    return [LoseEverything(), KeepEverything(), *drawn]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_anywhere_keeps_all_guarantees(scenario: Scenario, record_figure: Figure) -> None:
    check_every_point(scenario, record_figure)


def check_every_point(scenario: Scenario, record_figure: Figure) -> None:
    counter = Counter(scenario.kind.make)
    trace = _trace(scenario)
    points = _crash_points(trace)
    for ordinal, kept in points:
        run = _crash(scenario, ordinal, kept)
        settle = ordinal % scaled(test=16, verify=1, release=1) == 0
        try:
            _check(run, run.disk.survivor_of_kill(), "kill", counter, settle=settle)
            for choice in _choices(ordinal, kept):
                survivor = run.disk.survivor_of_power_cut(choice)
                lost = settle and isinstance(choice, LoseEverything)
                _check(run, survivor, "power cut", counter, settle=lost)
        except BaseException as error:
            error.add_note(
                f"{kept} bytes kept of operation {ordinal}: {trace[ordinal : ordinal + 1]}"
            )
            raise
    record_figure("crash: points in traces", len(points))
    record_figure("crash: recoveries after a point in a trace", counter.recoveries)


def _crash(scenario: Scenario, ordinal: int, kept: int | None) -> Run:
    run = _begin(scenario)
    if kept is None:
        run.disk.crash_before(ordinal)
    else:
        run.disk.crash_during(ordinal, kept)
    with suppress(SimulatedCrash):
        scenario.act(run)
    return run


def _check(run: Run, disk: SimulatedDisk, after: str, counter: Counter, *, settle: bool) -> None:
    clean = disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_FILE}")
    engine, logs = start(disk, run.config, make=type(run).make)
    counter.recoveries += 1
    assert not engine.statistics().failed_directories
    log = logs.get(PARTITION)
    seen = None if log is None else look(log, disk)
    run.expectations.check(seen, after=after.removesuffix(" cut"), clean=clean)
    if isinstance(run, RecreatedPartition):
        run.check_lives(logs, disk, after.removesuffix(" cut"))
    if settle and log is not None and seen is not None:
        counter.check_settled(disk, engine, log, seen, run.config)
