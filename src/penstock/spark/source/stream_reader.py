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
from collections.abc import Collection, Iterator, Sequence
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
    TopicIds,
    format_partitions,
    nest_by_topic,
    read_offset,
    write_offset,
)
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import (
    backlog,
    find_recreated,
    find_starts,
    limit_ends,
    plan_batch,
    recreation_losses,
    rows_within_bytes,
    should_wait,
    split_ranges,
)
from penstock.spark.source.read_task import (
    ReadRange,
    ReadRanges,
    plan_small_tasks,
    plan_tasks,
    read_settings,
)

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
        assert isinstance(partition, (ReadRange, ReadRanges))
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
        self._fixed_end: StreamOffset | None = None  # with Trigger.AvailableNow
        self._checked_ids: TopicIds = {}  # of the last end of a batch; the cluster had these
        self._last_batch_at = float("-inf")  # monotonic seconds
        self._group: GroupOffsetPublisher | None = None
        if options.publishes_offsets and options.group is not None:
            self._group = GroupOffsetPublisher(client, options.group)

    def initial_offset(self) -> StreamOffset:
        """Computed once, although Spark asks for it several times in the first batch."""
        if self._initial is None:
            partitions, topic_ids = self._discovery.find_subscribed()
            starts = self._discovery.resolve(self._options.starting, partitions, is_start=True)
            self._initial = StreamOffset(starts, {}, is_initial=True, topic_ids=topic_ids)
            if self._fixed_end is not None:
                self.fix_end()  # never before the start
        return self._initial

    def fix_end(self) -> None:
        partitions, topic_ids = self._discovery.find_subscribed(is_lenient=self._is_lenient)
        self._fixed_end = StreamOffset(self._discovery.latest(partitions), {}, topic_ids=topic_ids)

    @property
    def _is_lenient(self) -> bool:
        return not self._options.fail_on_data_loss

    # Where a batch ends.

    def end_of_batch(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset | None:
        """None: there are no new records, or too few."""
        end = self._find_end(start)
        self._latest = ends = end.offsets
        consumed = self._find_consumed(start, end)
        if self._group is not None:
            self._group.publish(consumed)
        added = ends.keys() - consumed.keys()
        new_starts = self._discovery.earliest(sorted(added))
        starts = {**consumed, **new_starts}
        if is_limited:
            if not start.is_initial and self._must_wait(starts, ends):
                return None
            ends = self._limit(starts, ends)
        if ends == consumed and not start.is_initial:
            return None
        self._last_batch_at = time.monotonic()
        self._checked_ids = end.topic_ids
        new_starts = starts if start.is_initial else new_starts
        return StreamOffset(ends, new_starts, topic_ids=end.topic_ids)

    def _find_end(self, start: StreamOffset) -> StreamOffset:
        if self._fixed_end is not None:
            return self._fixed_end
        partitions, topic_ids = self._discovery.find_subscribed(
            is_lenient=self._is_lenient, saved_ids=start.topic_ids
        )
        consumed = _without(start.offsets, find_recreated(start.topic_ids, topic_ids))
        latest = self._discovery.latest(partitions, consumed)
        return StreamOffset(latest, {}, topic_ids=topic_ids)

    def _find_consumed(self, start: StreamOffset, end: StreamOffset) -> Offsets:
        """The start, without topics that were created anew: nothing of them has been read."""
        self._discovery.report_losses(recreation_losses(start.topic_ids, end.topic_ids))
        recreated = find_recreated(start.topic_ids, end.topic_ids)
        if recreated and self._group is not None:
            self._group.forget(recreated)
        return _without(start.offsets, recreated)

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
        lost = self._find_lost(end)
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
        if self._history is not None or self._options.min_partitions is not None:
            return plan_tasks(pieces, self._history)
        return plan_small_tasks(pieces, max_records=self._options.max_records_per_partition)

    def _find_lost(self, end: StreamOffset) -> set[TopicPartition]:
        """Partitions of a planned batch that are no longer those it was planned for: deleted since
        a run with Trigger.AvailableNow started, or recreated, also before this run."""
        is_checked = end.topic_ids == self._checked_ids
        if self._fixed_end is None and is_checked:
            return set()
        existing = self._discovery.find_subscribed(is_lenient=True, saved_ids=end.topic_ids)
        recreated = find_recreated(end.topic_ids, existing.topic_ids)
        self._discovery.report_losses(recreation_losses(end.topic_ids, existing.topic_ids))
        lost = {tp for tp in end.offsets if tp.topic in recreated}
        if self._fixed_end is None:
            return lost
        gone = end.offsets.keys() - set(existing.partitions)
        if gone:
            loss = f"{format_partitions(gone)} were there when this run started and are gone"
            self._discovery.report_losses([loss])
        return lost | gone

    def report(self) -> dict[str, Any] | None:
        if not self._latest:
            return None
        reported = nest_by_topic(self._latest)
        if self._group is None or self._options.group is None:
            return reported
        group = PublishedGroup(self._options.client.bootstrap, self._options.group)
        return add_published_group(reported, group)


def _without(offsets: Offsets, topics: Collection[str]) -> Offsets:
    return {tp: offset for tp, offset in offsets.items() if tp.topic not in topics}
