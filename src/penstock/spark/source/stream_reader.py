# ruff: noqa: N802 - Spark names these methods
"""`spark.readStream.format("penstock")`: decides where each micro-batch starts and ends, and plans
its tasks.

Spark calls it from one process per query, in order: initialOffset, then latestOffset and partitions
for each batch. Two properties of Spark shape it. Spark never saves the initial offset, so the end
offset of the first batch carries it. Spark calls `commit` a batch late and never for the last one,
so progress is published when the next batch is planned: everything before its start has been
processed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import shared_client
from penstock.spark.source.discovery import Discovery
from penstock.spark.source.group_offsets import (
    GroupOffsetPublisher,
    PublishedGroup,
    add_published_group,
)
from penstock.spark.source.history import OpenHistory
from penstock.spark.source.offset_json import (
    Offsets,
    StreamOffset,
    format_partitions,
    nest_by_topic,
    read_offset,
    write_offset,
)
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import (
    backlog,
    find_starts,
    limit_ends,
    plan_batch,
    rows_within_bytes,
    should_wait,
    split_ranges,
)
from penstock.spark.source.read_task import ReadRange, plan_tasks, read_settings

if TYPE_CHECKING:
    import pyarrow as pa


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pickled to executors for `read` alone, so everything else is created when needed."""

    def __init__(
        self,
        options: SourceOptions,
        columns: tuple[str, ...],
        open_history: OpenHistory | None = None,
    ) -> None:
        self._options = options
        self._settings = read_settings(options, columns)
        self._open_history = open_history
        self._driver: _Driver | None = None

    def initialOffset(self) -> dict[str, Any]:
        return write_offset(self._get_driver().initial_offset())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark supports one limit at a time. Any value but ReadAllAvailable will do, because the
        limits themselves are applied here."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        is_limited = not isinstance(limit, ReadAllAvailable)
        end = self._get_driver().end_of_batch(read_offset(start), is_limited=is_limited)
        return start if end is None else write_offset(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._get_driver().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._get_driver().plan(read_offset(start), read_offset(end))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, ReadRange)
        return partition.read(self._settings)

    def prepareForTriggerAvailableNow(self) -> None:
        self._get_driver().fix_end()

    def _get_driver(self) -> "_Driver":
        if self._driver is None:
            self._driver = _Driver(self._options, self._open_history)
        return self._driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}


class _Driver:
    """The reader's state, in the process that plans."""

    def __init__(self, options: SourceOptions, open_history: OpenHistory | None) -> None:
        self._options = options
        client = shared_client(options.client)
        self._history = None if open_history is None else open_history(client)
        self._discovery = Discovery(client, options, self._history)
        self._initial: StreamOffset | None = None
        self._latest: Offsets = {}  # as of the last call
        self._fixed_end: Offsets | None = None  # with Trigger.AvailableNow
        self._last_batch_at = float("-inf")  # monotonic seconds
        self._group: GroupOffsetPublisher | None = None
        if options.publishes_offsets and options.group is not None:
            self._group = GroupOffsetPublisher(client, options.group)

    def initial_offset(self) -> StreamOffset:
        """Computed once, although Spark asks for it several times in the first batch."""
        if self._initial is None:
            partitions = self._discovery.find_partitions()
            starts = self._discovery.resolve(self._options.starting, partitions, is_start=True)
            self._initial = StreamOffset(starts, {}, is_initial=True)
            if self._fixed_end is not None:
                self.fix_end()  # never before the start
        return self._initial

    def fix_end(self) -> None:
        partitions = self._discovery.find_partitions(is_lenient=self._is_lenient)
        self._fixed_end = self._discovery.latest(partitions)

    @property
    def _is_lenient(self) -> bool:
        return not self._options.fail_on_data_loss

    # Where a batch ends.

    def end_of_batch(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset | None:
        """None: there are no new records, or too few."""
        if self._group is not None:
            self._group.publish(start.offsets)
        self._latest = ends = self._find_ends(start)
        added = ends.keys() - start.offsets.keys()
        new_starts = self._discovery.earliest(sorted(added))
        starts = {**start.offsets, **new_starts}
        if is_limited:
            if not start.is_initial and self._must_wait(starts, ends):
                return None
            ends = self._limit(starts, ends)
        if ends == start.offsets and not start.is_initial:
            return None
        self._last_batch_at = time.monotonic()
        return StreamOffset(ends, starts if start.is_initial else new_starts)

    def _find_ends(self, start: StreamOffset) -> Offsets:
        if self._fixed_end is not None:
            return self._fixed_end
        partitions = self._discovery.find_partitions(is_lenient=self._is_lenient)
        return self._discovery.latest(partitions, start.offsets)

    def _must_wait(self, starts: Offsets, ends: Offsets) -> bool:
        """Never with a fixed end, because no more records will count."""
        at_least = self._options.min_offsets_per_trigger
        if at_least is None or self._fixed_end is not None:
            return False
        return should_wait(
            sum(backlog(starts, ends).values()),
            at_least=at_least,
            since_last_ms=(time.monotonic() - self._last_batch_at) * 1000,
            max_delay_ms=self._options.max_trigger_delay_ms,
        )

    def _limit(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        sizes = backlog(starts, ends)
        limit = self._options.max_offsets_per_trigger
        max_bytes = self._options.max_bytes_per_trigger
        if max_bytes is not None and sizes:
            measured = self._discovery.bytes_per_offset({tp: starts[tp] for tp in sizes})
            within = rows_within_bytes(sizes, measured, max_bytes)
            limit = within if limit is None else min(limit, within)
        return dict(ends) if limit is None else limit_ends(starts, ends, limit)

    # Ranges of a batch.

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        lost = self._find_lost(end) if self._fixed_end is not None else set()
        starts = find_starts(start, end)
        unknown = end.offsets.keys() - starts.keys() - lost
        starts |= self._discovery.earliest(sorted(unknown))
        starts |= {tp: end.offsets[tp] for tp in lost}
        ranges, losses = plan_batch(start, end, starts)
        self._discovery.report_losses(losses)
        pieces = split_ranges(
            [wanted for wanted in ranges if wanted.tp not in lost],
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return plan_tasks(pieces, self._history)

    def _find_lost(self, end: StreamOffset) -> set[TopicPartition]:
        """Partitions that were deleted since a run with Trigger.AvailableNow started."""
        existing = self._discovery.find_partitions(is_lenient=True)
        lost = end.offsets.keys() - set(existing)
        if lost:
            loss = f"{format_partitions(lost)} were there when this run started and are gone"
            self._discovery.report_losses([loss])
        return lost

    def report(self) -> dict[str, Any] | None:
        if not self._latest:
            return None
        reported = nest_by_topic(self._latest)
        if self._group is None or self._options.group is None:
            return reported
        group = PublishedGroup(self._options.client.bootstrap, self._options.group)
        return add_published_group(reported, group)
