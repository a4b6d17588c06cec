"""The visible end of any log with a delay, whatever was appended, truncated and deleted, and
however the clock was set."""

from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.profile import scaled

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.replication.visible_end import VisibleEnd, VisibleEnds
from penstock.storage.engine import AppendItem, LogAppendInfo
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.manual_clock import ManualClock

DELAY_MS = 100
TP = TopicPartition("retry", 0)
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    message_timestamp_type="LogAppendTime",
    penstock_delay_ms=DELAY_MS,
)


class VisibleEndModel(RuleBasedStateMachine):
    """The model keeps every batch with its append time and walks them all."""

    @initialize()
    def start(self) -> None:
        self.folder = TemporaryDirectory()
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=(str(Path(self.folder.name) / "logs"),)),
            config_of=lambda topic: CONFIG,
        )
        self.now_ms = 1_000_000
        self.engine.recover(lambda *, done, total: None, self.now_ms)
        self.log = self.engine.create(TP, TopicId(UUID(int=1)), CONFIG, self.now_ms)
        self.batches: list[tuple[int, int, int]] = []  # first offset, end offset, append time
        self.reached = 0  # the visible end does not move back
        self.clock = ManualClock()
        self.moved = 0
        ends = VisibleEnds(
            wall_ms=lambda: self.now_ms, timers=self.clock, on_moved=lambda tp: self._on_moved()
        )
        visible_end = ends.create(self.log)
        assert visible_end is not None
        self.visible_end: VisibleEnd = visible_end

    def _on_moved(self) -> None:
        self.moved += 1

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        records = [Record(index, 5, b"k", b"v" * 20) for index in range(count)]
        item = AppendItem(self.log, memoryview(build_batch(records)), LeaderEpoch(0))
        (result,) = self.engine.append([item], self.now_ms)
        assert isinstance(result, LogAppendInfo)
        self.batches.append((result.base_offset, result.end_offset, self.now_ms))
        self.log.advance_high_watermark(result.end_offset)

    @rule(duration_ms=st.integers(1, 2 * DELAY_MS))
    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.clock.advance_ms(duration_ms)

    @rule(duration_ms=st.integers(1, 3 * DELAY_MS))
    def set_back(self, duration_ms: int) -> None:
        self.now_ms -= duration_ms

    @precondition(lambda self: self.batches)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        keep = int(share * len(self.batches))
        end = self.batches[keep - 1][1] if keep else self.log.log_start_offset
        end = max(end, self.log.log_start_offset)
        self.log.truncate_to(Offset(end), self.now_ms)
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        self.visible_end.reset()
        self.reached = 0

    @precondition(lambda self: self.batches)
    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        self.log.delete_before(Offset(int(share * self.log.high_watermark)))

    @rule()
    def look(self) -> None:
        start = max(self.reached, self.log.log_start_offset)
        hidden = (
            max(first, start)
            for first, end, append_ms in self.batches
            if end > start and append_ms + DELAY_MS > self.now_ms
        )
        self.reached = next(hidden, max(start, self.log.log_end_offset))
        assert self.visible_end.find_and_wake() == self.reached

    @precondition(lambda self: self.batches)
    @rule()
    def wait_until_woken(self) -> None:
        """Whoever looks at a hidden record is woken no later than it is due."""
        self.look()
        before, woken = self.reached, self.moved
        if before == self.log.log_end_offset:
            return
        due = max(append_ms for _, end, append_ms in self.batches if end > before) + DELAY_MS
        self.now_ms, passed_ms = max(due, self.now_ms), max(due - self.now_ms, 1)
        self.clock.advance_ms(passed_ms)
        assert self.moved > woken
        self.look()

    @invariant()
    def at_most_one_timer(self) -> None:
        assert self.clock.pending <= 1

    def teardown(self) -> None:
        self.engine.abandon()
        self.folder.cleanup()


TestVisibleEnd = VisibleEndModel.TestCase
TestVisibleEnd.settings = settings(
    max_examples=scaled(test=20, verify=1_000, release=5_000), stateful_step_count=40, deadline=None
)
