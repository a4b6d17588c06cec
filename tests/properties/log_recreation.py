"""Deletes and recreates the log under test, beside another that must not be affected.

Each incarnation has its own topic id and model. Until the deletion is durable a power cut may bring
the previous incarnation back as a whole; a kill never does.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from tests.properties.log_crashes import Crashes
from tests.properties.log_drawing import (
    MAX_EPOCH,
    OTHER,
    OTHER_CONFIG,
    PARTITION,
    TOPIC_ID,
)
from tests.properties.log_model import Incarnation, Model, Stored

from penstock.model.ids import LeaderEpoch, Offset, TopicId
from penstock.protocol.batch import iter_headers, stamp_offset_and_epoch
from penstock.protocol.records import build_batch
from penstock.storage.engine import AppendItem, Job, Read
from penstock.storage.errors import DirectoryFailed, LogFenced, StorageError
from penstock.storage.log import SegmentedLog


class Recreation(Crashes):
    """Adds the steps `recreate`, `append_other` and `remove_folders`."""

    def __init__(self, seed: int) -> None:
        self.other: SegmentedLog | None = None
        self.others: list[bytes] = []  # the batches that may be in the other log
        self.others_written = 0  # number of batches that survive a kill
        self.others_durable = 0  # offset up to which they survive a power cut
        super().__init__(seed)

    def create_other(self) -> None:
        """The other log is durable from the start, so it may never be missing."""
        self.other = self._own(self.engine.create(OTHER, TOPIC_ID, OTHER_CONFIG, self.now_ms))
        self.append_other()
        self.background.pump()
        self.check_other_log()
        assert self.others_durable > 0

    def append_other(self) -> None:
        if self.other is None:
            return
        log, epoch = self.other, len(self.others) // 4
        batch = build_batch(self._records(0, 2))
        stamped = bytearray(batch)
        stamp_offset_and_epoch(stamped, 0, log.log_end_offset, epoch)
        self.others.append(bytes(stamped))
        item = AppendItem(log, memoryview(batch), LeaderEpoch(epoch))
        [result] = self.engine.append([item], self.now_ms)
        if isinstance(result, StorageError):
            raise result
        self.others_written = len(self.others)
        self.engine.flush(log, log.log_end_offset, lambda error: None)

    def check(self) -> None:
        super().check()
        assert not self.engine.statistics().failed_directories
        if self._is_creation_durable() and not self.background.waiting:
            self._settle_deletion()  # a flush of the new log has made its name durable
        self.check_other_log()

    def _is_creation_durable(self) -> bool:
        return not self.log.is_folder_new

    def check_other_log(self) -> None:
        if self.other is not None:
            assert self.other.failure is None
            self.others_durable = max(self.others_durable, self.other.durable_offset)
            assert self.other.log_end_offset == 2 * len(self.others)

    def _settle_deletion(self) -> None:
        self.formers.clear()
        self.may_be_absent.clear()

    # -- deleting ------------------------------------------------------------------------------

    def recreate(self) -> None:
        """Running and queued flushes of the old log end while the new one exists."""
        self.intended = None
        self.witnessed["deletion during a job"] += self.is_in_job
        self.witnessed["deletion during a flush"] += bool(self.background.waiting)
        leased = self._lease()
        self._run_while_deleting(self._delete)
        if not self.is_in_job and self.random.random() < 0.2:
            leased()
            self._come_back(is_power_cut=self.random.random() < 0.5)
            return
        self._run_while_deleting(self._create_again)
        for _ in range(self.random.choice([0, 1, 1, 3])):
            self.append()
        leased()

    def _lease(self) -> Callable[[], None]:
        """Sometimes a reader holds a lease, and its slices stay valid until it is released."""
        log = self.log
        if self.random.random() < 0.5 or log.log_start_offset == log.log_end_offset:
            return lambda: None
        end = log.log_end_offset
        read = log.read(log.log_start_offset, below=end, max_bytes=500, at_least_one=True)
        content = self._peek(read)

        def check() -> None:
            assert self._peek(read) == content, "the reader of a deleted log reads something else"
            read.lease.release()

        return check

    def _peek(self, read: Read) -> list[bytes]:
        return [self.disk.pread(s.fd, s.length, s.position) for s in read.slices]

    def _run_while_deleting(self, act: Callable[[], None]) -> None:
        try:
            act()
        except DirectoryFailed as error:
            raise LogFenced(PARTITION, error.first_error) from error

    def _delete(self) -> None:
        self.may_be_absent |= {"kill", "power"}
        self.engine.delete(PARTITION)
        self.formers.append(self._save())
        self._begin_life()

    def _save(self) -> Incarnation:
        # The checkpoints forget it before its folder's new name is durable.
        forgotten = [replace(model, checkpointed_start=0) for model in (self.model, *self.ghosts)]
        return Incarnation(
            self.topic_id,
            forgotten[0].copy(),
            forgotten[1:],
            self.producers,
            self.ended,
            self.epoch,
            self.max_start,
            self.murky_below,
            self.is_compacted,
            self.is_compacting,
        )

    def _begin_life(self) -> None:
        self.incarnations += 1
        self.topic_id = TopicId(UUID(int=TOPIC_ID.int + self.incarnations))
        self._take(Incarnation(self.topic_id, Model(), [], {}, [], 0, 0, 0, False, False))
        self.is_reloaded = False
        self.epoch = self.random.choice([0, 1, 7, MAX_EPOCH - 4])

    def _take(self, incarnation: Incarnation) -> None:
        self.topic_id, self.model, self.ghosts = (
            incarnation.topic_id,
            incarnation.model,
            incarnation.ghosts,
        )
        self.producers, self.ended, self.epoch = (
            incarnation.producers,
            incarnation.ended,
            incarnation.epoch,
        )
        self.max_start, self.murky_below = incarnation.max_start, incarnation.murky_below
        self.is_compacted, self.is_compacting = incarnation.is_compacted, incarnation.is_compacting
        self.intended = None

    def _create_again(self) -> None:
        created = self._own(self.engine.create(PARTITION, self.topic_id, self.config, self.now_ms))
        assert (created.log_start_offset, created.log_end_offset) == (0, 0)
        self.log = created
        self.may_be_absent.discard("kill")
        self.witnessed["deletion and re-creation"] += 1

    def remove_folders(self) -> None:
        """Runs the removal jobs only; other due jobs do not matter here."""
        removals: list[Job] = list(self.engine._removals)
        self.engine._removals.clear()
        for job in removals:
            job.run(lambda function: function())
        if removals and self.log.failure is None:
            self._settle_deletion()

    # -- coming back ---------------------------------------------------------------------------

    def _settle(self, *, is_power_cut: bool) -> None:
        self._check_other(is_power_cut=is_power_cut)
        if self.is_absent:
            kind = "power" if is_power_cut else "kill"
            assert kind in self.may_be_absent, f"gone after a {kind}: {self.reports}"
            self._settle_deletion()
            self._begin_life()
            self._create_again()
            self.may_be_absent.add("power")
            return
        incarnation = self._find_former()
        if incarnation is not None:
            assert is_power_cut, "a deleted partition is back"
            self.witnessed["deleted log came back"] += 1
            self._take(incarnation)
        self._settle_deletion()
        super()._settle(is_power_cut=is_power_cut)

    def _find_former(self) -> Incarnation | None:
        """The former incarnation that was recovered, if it is not the current one.

        A topic id that was not synced may be lost; then the batches decide, or the log's offset if
        there are none.
        """
        topic_id = self.log.topic_id
        if topic_id.int:
            incarnations = [
                incarnation for incarnation in self.formers if incarnation.topic_id == topic_id
            ]
            assert incarnations or topic_id == self.topic_id, f"of an unknown topic {topic_id}"
            return incarnations[0] if incarnations else None
        batches = self._read_batches()[:1]
        models = [self.model, *self.ghosts, *([self.intended] if self.intended else [])]
        if any(_may_be(model, batches, self.log) for model in models):
            return None
        for incarnation in reversed(self.formers):
            if any(
                _may_be(model, batches, self.log)
                for model in (incarnation.model, *incarnation.ghosts)
            ):
                return incarnation
        return None

    def close(self) -> None:
        super().close()
        self._check_other(is_power_cut=False)
        self._settle_deletion()

    def _check_other(self, *, is_power_cut: bool) -> None:
        if self.other is None:
            return
        log = self._own(self.engine._logs.get(OTHER))
        batches = list(self._batches_of(log))
        assert log.log_start_offset == 0
        assert batches == self.others[: len(batches)], "the other partition has changed"
        assert log.log_end_offset == 2 * len(batches) >= self.others_durable
        assert is_power_cut or len(batches) >= self.others_written, "the other partition lost some"
        self.other, self.others, self.others_written = log, batches, len(batches)

    def _batches_of(self, log: SegmentedLog) -> list[bytes]:
        batches: list[bytes] = []
        position = log.log_start_offset
        while position < log.log_end_offset:
            read = log.read(position, below=log.log_end_offset, max_bytes=999, at_least_one=True)
            content = self._content(read)
            batches += [content[start : start + h.size] for start, h in iter_headers(content)]
            position = Offset(read.end_offset)
        return batches


def _may_be(model: Model, batches: list[Stored], log: SegmentedLog) -> bool:
    if batches:
        return batches[0] in model.batches
    return model.checkpointed_start <= log.log_start_offset <= model.end
