"""A partition that is deleted and recreated beside another one, in scenarios that may crash.

Each incarnation has its own topic id, by which the recovered state is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

from tests.crash.crash_run import Expectations, Run
from tests.crash.harness import (
    CONFIG,
    DATA,
    NOW_MS,
    PARTITION,
    Timeline,
    create,
    data_batch,
    epochs_in,
    look,
    scenario,
    start,
)

from penstock.config.log_config import LogConfig
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.batch import stamp_offset_and_epoch
from penstock.storage.engine import AppendItem, LogAppendInfo
from penstock.storage.errors import LogFenced, StorageError
from penstock.storage.group_commit import Background
from penstock.storage.log import SegmentedLog
from penstock.testing.simulated_disk import SimulatedDisk

Result = TypeVar("Result")
OTHER = TopicPartition("others", 0)
SECOND_ID = TopicId(UUID(int=8))
OTHERS_COUNT = 3


def written_beside_another(kind: type[Run] = Run) -> tuple[SimulatedDisk, Expectations]:
    """Two partitions, both closed cleanly and with entries in the checkpoints."""
    disk = SimulatedDisk(DATA)
    run = kind(disk, Expectations())
    run.start()
    other = create(run.engine, partition=OTHER)
    items = [
        AppendItem(other, memoryview(data_batch(number)), LeaderEpoch(1))
        for number in range(OTHERS_COUNT)
    ]
    assert all(isinstance(result, LogAppendInfo) for result in run.engine.append(items, NOW_MS))
    run.create()
    for step in scenario():
        run.append(step)
    run.close()
    return disk.survivor_of_kill(), run.expectations


class RecreatedPartition(Run):
    """`self.log` is the current incarnation; the other partition must never be affected."""

    def __init__(
        self,
        disk: SimulatedDisk,
        expectations: Expectations,
        config: LogConfig = CONFIG,
        background: Background | None = None,
    ) -> None:
        super().__init__(disk, expectations, config, background)
        self.other: SegmentedLog
        self.others = [_stamped(number, 2 * number) for number in range(OTHERS_COUNT)]
        self.others_certain = {"kill": 2 * OTHERS_COUNT, "power": 2 * OTHERS_COUNT}
        self._between: list[Callable[[], None]] = []

    def start(self) -> None:
        self.engine, logs = start(
            self.disk, self.config, background=self.background, make=type(self).make
        )
        self.log, self.other = logs[PARTITION], logs[OTHER]
        self._note_durable()

    def delete(self) -> None:
        for timeline in self.expectations.power:
            timeline.starts.add(0)  # deleted records may come back with the whole log
        super().delete()
        self.expectations.kill.clear()

    def create_again(self) -> None:
        self.expectations.absent = {"kill", "power"}
        self.expectations.kill[:] = [Timeline(topic_id=SECOND_ID)]
        self.expectations.power.append(Timeline(topic_id=SECOND_ID))
        self.log = create(self.engine, self.config, topic_id=SECOND_ID)
        self.expectations.absent = {"power"}

    def flush_in_vain(self) -> list[StorageError | None]:
        """Requests a flush of a log that is deleted before the flush round ends."""
        answers: list[StorageError | None] = []
        self.engine.flush(self.log, self.log.log_end_offset, answers.append)
        return answers

    def append_to_other(self) -> None:
        number = len(self.others)
        self.others.append(_stamped(number, self.other.log_end_offset))
        item = AppendItem(self.other, memoryview(data_batch(number)), LeaderEpoch(1))
        (result,) = self.engine.append([item], NOW_MS)
        assert isinstance(result, LogAppendInfo), result
        self.others_certain["kill"] = result.end_offset

    def flush_other(self) -> None:
        upto = self.other.log_end_offset

        def done(error: StorageError | None) -> None:
            assert error is None, error
            self.others_certain["power"] = upto

        self.engine.flush(self.other, upto, done)

    def between_visits(self, act: Callable[[], None]) -> None:
        """Runs `act` once, after the next job's first visit to the owner."""
        self._between.append(act)

    def on_owner(self, function: Callable[[], Result]) -> Result:
        result = function()
        while self._between:
            self._between.pop(0)()
        return result

    def check_lives(
        self, logs: Mapping[TopicPartition, SegmentedLog], disk: SimulatedDisk, after: str
    ) -> None:
        assert OTHER in logs, "the other partition is gone"
        other = Timeline(self.others, min_end=self.others_certain[after])
        problem = other.find_problem(look(logs[OTHER], disk))
        assert problem is None, f"the other partition {problem}"
        if PARTITION in logs and logs[PARTITION].topic_id == SECOND_ID:
            seen = look(logs[PARTITION], disk)
            assert seen.epochs == epochs_in(seen.batches)


def check_refused(answers: list[StorageError | None]) -> None:
    assert [type(answer) for answer in answers] == [LogFenced]


def _stamped(number: int, offset: int) -> bytes:
    batch = data_batch(number)
    stamp_offset_and_epoch(batch, 0, offset, 1)
    return bytes(batch)
