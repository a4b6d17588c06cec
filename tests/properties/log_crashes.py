"""Stops the log under test by kill, power cut or cleanly, and checks the recovered state."""

from errno import EIO

from tests.properties.log_checks import Checks
from tests.properties.log_drawing import (
    PARTITION,
    ignore_progress,
)
from tests.properties.log_model import (
    Model,
    Stored,
    find_hole,
    replay,
)

from penstock.protocol.records import build_batch
from penstock.storage.engine import NO_TOPIC_ID
from penstock.storage.errors import (
    DirectoryFailed,
    LogFenced,
)
from penstock.testing.simulated_disk import (
    CrashChoice,
    KeepEverything,
    LoseEverything,
    OperationKind,
    SeededChoice,
    SimulatedCrash,
)


class Crashes(Checks):
    """After a crash the model becomes the recovered state, if that state is allowed."""

    def kill(self) -> None:
        self.witnessed["crash"] += 1
        self._come_back(is_power_cut=False)

    def cut_power(self) -> None:
        self.witnessed["crash"] += 1
        self._come_back(is_power_cut=True)

    def close(self) -> None:
        self.background.pump()
        self.engine.close()
        assert self.disk.open_descriptors == 0, "a descriptor was left open"
        model = self.model
        self.disk = self.disk.copy()
        if self.random.random() < 0.3:
            self.disk = self.disk.survivor_of_power_cut(self._choice())
        self._open()
        self.is_reloaded = True
        assert not self.is_absent, f"the partition is gone: {self.reports}"
        log = self.log
        assert log.topic_id in (self.topic_id, NO_TOPIC_ID)
        assert not [r for r in self.reports if "rebuilding" in r or "recovering" in r], self.reports
        assert self._read_batches() == model.visible()
        if model.start < self._first_offset():  # there are no records between the two
            self._move_start(self._first_offset())
            model.high_watermark = max(model.high_watermark, model.start)
        offsets = log.log_start_offset, log.high_watermark, log.log_end_offset
        assert offsets == (model.start, model.high_watermark, model.end), (
            offsets,
            model.start,
            model.high_watermark,
            model.end,
        )
        model.durable = model.end
        model.checkpointed_start = model.start
        self._adopt_epochs(model)
        self.ghosts.clear()
        self._check_producers(model.start)

    def _choice(self) -> CrashChoice:
        kind = self.random.randrange(4)
        if kind == 0:
            return LoseEverything()
        return KeepEverything() if kind == 1 else SeededChoice(self.random.getrandbits(32))

    def _come_back_from_error(self) -> None:
        """A fenced log accepts nothing more, and its durable offset still holds."""
        assert self.may_fail, f"the log is fenced though nothing failed: {self.reports}"
        self.witnessed["error"] += 1
        self.disk.heal()
        [result] = self._send(build_batch(self._records(0, 1)))
        assert isinstance(result, LogFenced), result
        self.log.statistics()
        failed = self.disk.trace and any(
            operation.kind is OperationKind.SYNC for operation in self.disk.trace[-12:]
        )
        # The page cache still holds what a failed sync dropped: only a reboot shows what is on
        # disk.
        self._come_back(is_power_cut=bool(failed) or self.random.random() < 0.5)

    def _come_back(self, *, is_power_cut: bool) -> None:
        self.background.waiting.clear()
        disk = self.disk
        is_torn = is_power_cut
        self.disk = disk.survivor_of_power_cut(self._choice()) if is_power_cut else disk.copy()
        if self.random.random() < 0.3:
            is_torn |= self._crash_in_recovery()
        self._open()
        self.is_reloaded = True
        self._settle(is_power_cut=is_torn)

    def _crash_in_recovery(self) -> bool:
        """Returns whether it ended in a power cut."""
        if self.random.random() < 0.7:
            self.disk.crash_before(self.random.choice([0, 1, 2, 3, 5, 8, 13, 21]))
        else:
            self.disk.fail_at(self.random.choice([0, 1, 2, 3, 5, 8, 13, 21]), EIO)
        try:
            self._open()
            if not self.engine.statistics().failed_directories:
                return False
        except (SimulatedCrash, DirectoryFailed):
            pass
        self.witnessed["crash in recovery"] += 1
        is_power_cut = self.random.random() < 0.5
        disk = self.disk
        failed = any(operation.kind is OperationKind.SYNC for operation in disk.trace)
        if failed or is_power_cut:
            self.disk = disk.survivor_of_power_cut(self._choice())
            return True
        self.disk = disk.copy()
        return False

    def _open(self) -> None:
        if self.disk.open_descriptors:
            self.disk = self.disk.copy()
        self._start_engine()
        logs = self.engine.recover(ignore_progress, self.now_ms)
        log = logs.get(PARTITION)
        self.is_absent = log is None
        if log is not None:
            self.log = self._own(log)

    def _settle(self, *, is_power_cut: bool) -> None:
        """Checks that the crash may leave the recovered state, and continues from it."""
        recovered = self._read_batches()
        alternatives = [self.model]
        if self.intended is not None:
            alternatives.append(self.intended)
        floor: list[Stored] = self._least()
        if is_power_cut:
            alternatives += reversed(self.ghosts)
            floor = self._durable()
        log = self.log
        start = log.log_start_offset
        assert start >= min(m.checkpointed_start for m in alternatives), "deleted records are back"
        # A segment that begins at a leader's far offset replaces an empty one; then there are no
        # records between the old start and the new.
        highest = max(max(m.start, m.high_watermark) for m in alternatives)
        if not recovered:
            highest = max(m.end for m in alternatives)
        assert start <= max([highest, *(b.base for b in recovered[:1])])
        matching = self._find_match(recovered, alternatives, start)
        assert matching is not None, self._describe(recovered, alternatives)
        low = max(start, self.murky_below)
        needed = [batch for batch in floor if batch.last >= low]
        clear = [batch for batch in recovered if batch.last >= low]
        if needed and not self._is_compacted_match:
            there = [batch for batch in recovered if batch.base >= needed[0].base]
            assert there[: len(needed)] == needed, "lost: " + self._describe(recovered, [matching])
        if not is_power_cut and self.intended is None and not self.is_compacting:
            assert clear == self.model.visible(low), self._describe(recovered, [self.model])
            assert log.log_end_offset == self.model.end
        self._adopt(recovered, matching, is_power_cut=is_power_cut)

    def _least(self) -> list[Stored]:
        """After a kill everything remains except what the interrupted operation was removing."""
        if self.intended is None:
            return self.model.batches
        pairs = zip(self.model.batches, self.intended.batches, strict=False)
        return [a for a, b in pairs if a == b and a.last >= self.model.start]

    def _durable(self) -> list[Stored]:
        if self.intended is None:
            return self.model.required()
        both = self.intended.required()
        start = self.model.start
        return [b for b in self.model.required() if b in both and b.last >= start]

    _is_compacted_match = False

    def _find_match(
        self, recovered: list[Stored], alternatives: list[Model], start: int
    ) -> Model | None:
        self._is_compacted_match = False
        start = max(start, self.murky_below)
        recovered = [batch for batch in recovered if batch.last >= start]
        for model in alternatives:
            expected = model.visible(start)
            if recovered == expected[: len(recovered)] and (
                recovered or self.log.log_end_offset <= max(m.end for m in alternatives)
            ):
                return model
        if self.is_compacting:
            for model in alternatives:
                before = model.visible(start)
                decided = min(self.log.log_end_offset, self.model.high_watermark)
                if find_hole(before, recovered, end_of_decided=decided) is None:
                    self._is_compacted_match = True
                    return model
        return None

    def _describe(self, recovered: list[Stored], alternatives: list[Model]) -> str:
        lines = [
            (
                f"found {brief(recovered)} from {self.log.log_start_offset} "
                f"to {self.log.log_end_offset}"
            )
        ]
        lines += [
            f"  allowed {brief(m.batches)} from {m.start} to {m.end}, durable {m.durable}"
            for m in alternatives
        ]
        return "\n".join([*lines, *self.reports])

    def _adopt(self, recovered: list[Stored], matching: Model, *, is_power_cut: bool) -> None:
        log = self.log
        start = log.log_start_offset
        front = [b for b in matching.batches if b.last < start]
        self.max_start = max(self.max_start, start)
        model = matching.copy()
        model.batches = front + recovered
        model.start, model.end = start, log.log_end_offset
        assert start <= log.high_watermark <= log.log_end_offset
        model.high_watermark = log.high_watermark
        model.durable = model.end if is_power_cut else min(model.durable, model.end)
        model.checkpointed_start = min(model.checkpointed_start, start)
        if is_power_cut:
            self.ghosts.clear()
        elif self.intended is not None:
            self.ghosts += [self.model, self.intended]
        self.model = model
        self._adopt_epochs(model)
        self.producers, self.ended = replay(model.batches)
        self._check_producers(start)


def brief(batches: list[Stored]) -> list[tuple[int, int, int]]:
    return [(b.base, b.last, b.header.leader_epoch) for b in batches]
