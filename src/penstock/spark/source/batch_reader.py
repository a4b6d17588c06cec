# ruff: noqa: N802 - Spark names these methods
"""`spark.read.format("penstock")`: reads a range of each partition that is fixed at planning.

The same reader plans on the driver, is pickled, and reads on executors.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import shared_client
from penstock.spark.source.discovery import Discovery
from penstock.spark.source.filters import PushedFilter, least_time_ms, narrow_ranges, parse_filters
from penstock.spark.source.history import OpenHistory
from penstock.spark.source.offset_json import Offsets
from penstock.spark.source.options import BoundKind, SourceOptions
from penstock.spark.source.plan import OffsetRange, split_ranges
from penstock.spark.source.read_task import ReadRange, plan_tasks, read_settings

if TYPE_CHECKING:
    import pyarrow as pa


class PenstockReader(DataSourceReader):
    def __init__(
        self,
        options: SourceOptions,
        columns: tuple[str, ...],
        open_history: OpenHistory | None = None,
    ) -> None:
        self._options = options
        self._settings = read_settings(options, columns)
        self._open_history = open_history
        self._pushed: list[PushedFilter] = []

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        client = shared_client(options.client)
        history = None if self._open_history is None else self._open_history(client)
        discovery = Discovery(client, options, history)
        ranges = narrow_ranges(_find_ranges(discovery, options), self._pushed)
        ranges = _skip_older(discovery, ranges, least_time_ms(self._pushed))
        pieces = split_ranges(
            ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        # Without any, Spark would read a partition that it invents itself.
        return plan_tasks(pieces, history) or [ReadRange(_EMPTY_RANGE)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, ReadRange)
        return partition.read(self._settings)


class FilteringReader(PenstockReader):
    """Separate, because Spark rejects a reader with `pushFilters` unless its own config is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed = parse_filters(filters)
        return filters  # only narrows ranges; Spark still filters the rows


_EMPTY_RANGE = OffsetRange(TopicPartition("", 0), 0, 0)


def _find_ranges(discovery: Discovery, options: SourceOptions) -> list[OffsetRange]:
    partitions = discovery.find_partitions()
    starts: Offsets = discovery.resolve(options.starting, partitions, is_start=True)
    ends: Offsets = discovery.resolve(options.ending, partitions, is_start=False)
    if {options.starting.kind, options.ending.kind} & {BoundKind.OFFSETS, BoundKind.GROUP}:
        starts, ends = _within_logs(discovery, partitions, starts, ends)
    return [OffsetRange(tp, starts[tp], ends[tp]) for tp in partitions]


def _within_logs(
    discovery: Discovery, partitions: list[TopicPartition], starts: Offsets, ends: Offsets
) -> tuple[Offsets, Offsets]:
    """Offsets from options or groups may be deleted, or not exist yet."""
    earliest, latest = discovery.earliest(partitions), discovery.latest(partitions)
    for tp in partitions:
        first, last = earliest[tp], latest[tp]
        if not first <= starts[tp] <= last or not first <= ends[tp] <= last:
            requested = f"offsets {starts[tp]} to {ends[tp]} of {tp} are requested"
            discovery.report_losses([f"{requested}, but the log holds {first} to {last}"])
    return (
        {tp: max(starts[tp], earliest[tp]) for tp in partitions},
        {tp: min(ends[tp], latest[tp]) for tp in partitions},
    )


def _skip_older(
    discovery: Discovery, ranges: list[OffsetRange], time_ms: int | None
) -> list[OffsetRange]:
    """Start each range at the first record that is late enough."""
    if time_ms is None or not ranges:
        return ranges
    firsts = discovery.at_times(dict.fromkeys((wanted.tp for wanted in ranges), time_ms))
    return [
        wanted._replace(start=max(wanted.start, first))
        for wanted in ranges
        if (first := firsts[wanted.tp]) is not None and first < wanted.end
    ]
