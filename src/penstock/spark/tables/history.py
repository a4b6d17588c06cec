"""Reads old records from tables: which offsets tables hold of the topics that a query reads.

Runs where the query is planned. A table is reloaded whenever a range needs it, so that no task
looks for files that a compaction has replaced.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.client.data_calls import EARLIEST
from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import BadOption
from penstock.spark.source.plan import OffsetRange
from penstock.spark.source.read_task import ReadRange
from penstock.spark.tables.history_plan import HistoryCut, cut_range, earliest, parts_within
from penstock.spark.tables.history_task import HistoryFiles, ReadHistory
from penstock.spark.tables.part_reader import LocatedPart, read_columns
from penstock.spark.tables.parts import HeldRange
from penstock.spark.tables.spec import TableSpec
from penstock.spark.tables.store import TableStore, dead_letters_of, find_format, find_store
from penstock.spark.tables.table_schema import OFFSET, TIMESTAMP

OPTION = "history"


class TableHistory:
    """`folder` is a table's folder, or a folder of tables named after their topics."""

    def __init__(self, folder: str, client: BlockingClient) -> None:
        self._folder = Path(folder.removeprefix("file://"))
        self._client = client
        self._tables: dict[str, _TopicHistory | None] = {}

    def earliest(self, log_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {tp: earliest(at, self._held(tp)) for tp, at in log_starts.items()}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets of the first record at or after each time, where a table has one."""
        offsets = {}
        for tp, time_ms in times.items():
            past = self._find(tp.topic)
            first = None if past is None else past.first_at(tp, time_ms)
            if first is not None:
                offsets[tp] = first
        return offsets

    def plan_tasks(self, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        """Tasks that read from tables what these hold, and the rest from the topic."""
        self._reload(ranges)
        tasks: list[InputPartition] = []
        for wanted in ranges:
            past, live = self._cut(wanted)
            if past is not None:
                tasks.append(ReadHistory(past, self._files(past)))
            if live is not None:
                tasks.append(ReadRange(live))
        return tasks

    def _reload(self, ranges: Iterable[OffsetRange]) -> None:
        """Reloads tables of partitions whose logs have deleted offsets of the ranges."""
        live = [span for span in ranges if self._cut(span).past is None]
        if not live:
            return
        starts = self._client.list_offsets(dict.fromkeys((r.tp for r in live), EARLIEST))
        for span in live:
            past = self._find(span.tp.topic)
            if past is not None and starts[span.tp].offset > span.start:
                past.load()

    def _cut(self, wanted: OffsetRange) -> HistoryCut:
        return cut_range(wanted, self._held(wanted.tp))

    def _files(self, wanted: OffsetRange) -> HistoryFiles:
        past = self._find(wanted.tp.topic)
        assert past is not None, "the range is in a table"
        return past.files(wanted)

    def _held(self, tp: TopicPartition) -> HeldRange | None:
        past = self._find(tp.topic)
        return None if past is None else past.held.get(tp.partition)

    def _find(self, topic: str) -> "_TopicHistory | None":
        """None if the topic has no table, so that only its log is read."""
        if topic not in self._tables:
            store = find_store(self._location(topic))
            self._tables[topic] = None if store is None else self._checked(topic, store)
        return self._tables[topic]

    def _location(self, topic: str) -> Path:
        if find_format(self._folder) is not None:
            return self._folder
        if not self._folder.is_dir():
            raise BadOption(OPTION, self._folder, "there is no such folder")
        return self._folder / topic

    def _checked(self, topic: str, store: TableStore) -> "_TopicHistory":
        reason = _why_not(store.spec, topic, self._topic_id(topic))
        if reason is not None:
            raise BadOption(OPTION, self._folder, f"the table in {store.location} {reason}")
        return _TopicHistory(store)

    def _topic_id(self, topic: str) -> str | None:
        topic_id = self._client.metadata([topic]).topics[topic].topic_id
        return None if topic_id is None else str(topic_id)


class _TopicHistory:
    """A topic's table and its dead letters, which are records of the topic too."""

    def __init__(self, store: TableStore) -> None:
        dead = find_store(dead_letters_of(store.location))
        self._stores = [store] if dead is None else [store, dead]
        self.held = store.state.held

    def load(self) -> None:
        for store in self._stores:
            store.load()
        self.held = self._stores[0].state.held

    def files(self, wanted: OffsetRange) -> HistoryFiles:
        self.load()
        files = []
        for store in self._stores:
            inside = parts_within(store.parts(), wanted)
            files += [LocatedPart(part, store.path_of(part)) for part in inside]
        return HistoryFiles(tuple(files), self._stores[0].schema)

    def first_at(self, tp: TopicPartition, time_ms: int) -> int | None:
        if tp.partition not in self.held:
            return None
        past = self.files(OffsetRange(tp, *self.held[tp.partition]))
        keep = pc.field(TIMESTAMP) >= pa.scalar(time_ms * 1000, past.schema.field(TIMESTAMP).type)
        late = [
            located for located in past.files if (located.part.last_time_us or 0) >= time_ms * 1000
        ]
        firsts = []
        for located in late:
            rows = read_columns(located, past.schema, [OFFSET], keep)
            if rows.num_rows:
                firsts.append(pc.min(rows.column(OFFSET)).as_py())
        return min(firsts, default=None)


def _why_not(spec: TableSpec, topic: str, topic_id: str | None) -> str | None:
    if spec.topic != topic:
        return f"belongs to topic {spec.topic!r}, not to {topic!r}"
    if None not in (spec.topic_id, topic_id) and spec.topic_id != topic_id:
        return "belongs to an earlier topic of the same name"
    if spec.upserts:
        return "has only the latest row of each key, not every record"
    if not spec.keeps_value:
        return "was created without the raw values (--drop-value)"
    return None
