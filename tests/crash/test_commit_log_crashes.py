"""The same scenarios with a crash at every point, on the commit log engine."""

# mypy: disable-error-code="attr-defined"

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import pytest
from tests.crash import test_every_crash_point as points
from tests.crash.crash_run import Expectations, RecordingRun, Run
from tests.crash.recreated_partition import RecreatedPartition, written_beside_another
from tests.crash.test_every_crash_point import COMPACTING, RETAINING, Scenario, check_every_point

from penstock.config.log_config import StorageConfig
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.testing.simulated_disk import SimulatedDisk

LONG_MS = 10**9


def make_engine(config: StorageConfig, **arguments: Any) -> CommitLogEngine:
    """Files so small that every scenario has several, which are emptied early."""
    small = StorageConfig(
        log_dirs=config.log_dirs,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        commit_log_file_bytes=1000,
        commit_log_min_live_ratio=0.5,
    )
    return CommitLogEngine(small, **arguments)


class CommitLogRun(Run):
    make = staticmethod(make_engine)

    def possible_starts(self) -> set[int]:
        queue = self.log.queue
        entries = queue.entries(queue.first, queue.end)
        return {int(self.log.log_start_offset), *(entry.next_offset for entry in entries)}

    def run_jobs(self, *names: str) -> None:
        """Checkpoints come with high watermarks before them and a pass over the files after."""
        kinds = ("high watermarks", "checkpoint", "commit log cleaning", "retention", "compaction")
        wanted = {*names, *(kinds[:3] if "checkpoint" in names else ())}
        due = [*self.engine.due_jobs(self._now_ms), *self.engine.due_jobs(self._now_ms + LONG_MS)]
        self._now_ms += LONG_MS
        for job in due:
            if job.name.startswith(tuple(wanted)):
                job.run(self.on_owner)
        assert not self.engine.statistics().failed_directories


class CommitLogRecreated(CommitLogRun, RecreatedPartition):
    pass


class CommitLogRecording(CommitLogRun, RecordingRun):
    pass


def _closed() -> tuple[SimulatedDisk, Expectations]:
    return points.written(close=True, kind=CommitLogRun)


def _killed() -> tuple[SimulatedDisk, Expectations]:
    return points.written(close=False, kind=CommitLogRun)


def _empty() -> tuple[SimulatedDisk, Expectations]:
    return points._empty()


def _beside() -> tuple[SimulatedDisk, Expectations]:
    return written_beside_another(CommitLogRun)


@cache
def _compaction_states() -> Sequence[tuple[bytes, ...]]:
    disk, expectations = _closed()
    run = CommitLogRecording(disk.copy(), expectations, COMPACTING)
    run.start()
    run.log.roll(0)
    run.run_jobs("compaction")
    assert len(run.states) >= 2, "nothing was compacted"
    return run.states


def compact(run: Run) -> None:
    run.start()
    run.log.roll(0)
    run.compact(_compaction_states())
    run.checkpoint()
    run.append_more(2)
    run.flush()


def clean_files(run: Run) -> None:
    """Batches move to the end of the log, and the files that they leave go."""
    run.start()
    run.delete_before(25)
    run.checkpoint()
    run.append_more(8)
    run.flush()
    run.checkpoint()
    run.checkpoint()
    run.append_more(1)
    run.flush()


def scenario(
    act: Callable[[Run], None],
    before: Callable[[], tuple[SimulatedDisk, Expectations]],
    *rest: Any,
    **fields: Any,
) -> Scenario:
    return Scenario(act, before, *rest, **{"kind": CommitLogRun, **fields})


recreated = partial(scenario, before=_beside, kind=CommitLogRecreated)
SCENARIOS = [
    scenario(points.create_partition, _empty),
    scenario(points.a_whole_life, _empty),
    scenario(points.append_and_flush, _closed),
    scenario(points.append_and_flush, _killed),
    scenario(points.roll_before_the_flusher_comes, _closed, is_deferred=True),
    scenario(points.truncate_within_a_segment, _closed),
    scenario(points.truncate_across_segments_and_epochs, _killed),
    scenario(points.truncate_what_is_below_the_recovery_point, _closed, is_deferred=True),
    scenario(points.truncate_while_a_flush_is_under_way, _closed, is_deferred=True),
    scenario(points.restart_ahead, _closed),
    scenario(points.restart_behind_a_checkpointed_start, _closed),
    scenario(points.delete_records, _closed),
    scenario(points.retain, _closed, RETAINING),
    scenario(points.delete_records_and_retain, _closed, RETAINING),
    scenario(points.stop_cleanly, _killed),
    scenario(points.start_only, _killed),
    scenario(points.write_checkpoints, _killed),
    scenario(points.delete_partition, _closed),
    scenario(points.delete_partition_while_a_flush_is_under_way, _closed, is_deferred=True),
    recreated(points.delete_and_create_again),
    recreated(points.delete_create_again_and_stop),
    recreated(points.delete_and_create_again_while_checkpoints_are_written),
    scenario(compact, _closed, COMPACTING),
    scenario(clean_files, _closed),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_anywhere_keeps_all_guarantees_of_the_commit_log(
    scenario: Scenario, record_figure: Callable[[str, int], None]
) -> None:
    check_every_point(scenario, record_figure)
