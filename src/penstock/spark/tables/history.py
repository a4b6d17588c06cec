"""Old records for the source: what tables hold of the topics that a query reads.

Lives in the process that plans. A table is loaded again whenever a range needs it, so that files
that a compaction has replaced are not looked for.
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
from penstock.spark.tables.history_plan import HistoryCut, cut, earliest, parts_within
from penstock.spark.tables.history_task import PastFiles, ReadPast
from penstock.spark.tables.part_reader import LocatedPart, read_columns
from penstock.spark.tables.parts import HeldRange
from penstock.spark.tables.spec import TableSpec
from penstock.spark.tables.store import TableStore, dead_letters_of, find_format, find_store
from penstock.spark.tables.table_schema import OFFSET, TIMESTAMP

OPTION = "history"


class TableHistory:
    """`folder`: a table of Penstock's, or a folder of them, named after their topics."""

    def __init__(self, folder: str, client: BlockingClient) -> None:
        self._folder = Path(folder.removeprefix("file://"))
        self._client = client
        self._tables: dict[str, _Past | None] = {}

    def earliest(self, log_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {each: earliest(at, self._held(each)) for each, at in log_starts.items()}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first record that is not older, of those partitions whose tables have one."""
        found = {}
        for each, time_ms in times.items():
            past = self._find(each.topic)
            first = None if past is None else past.first_at(each, time_ms)
            if first is not None:
                found[each] = first
        return found

    def plan_tasks(self, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        """What tables hold is read from them, the rest from the topic."""
        self._look(ranges)
        tasks: list[InputPartition] = []
        for wanted in ranges:
            past, live = self._cut(wanted)
            if past is not None:
                tasks.append(ReadPast(past, self._files(past)))
            if live is not None:
                tasks.append(ReadRange(live))
        return tasks

    def _look(self, ranges: Iterable[OffsetRange]) -> None:
        """Load tables again where logs have deleted what a table may hold by now."""
        live = [each for each in ranges if self._cut(each).past is None]
        if not live:
            return
        starts = self._client.list_offsets(dict.fromkeys((r.tp for r in live), EARLIEST))
        for each in live:
            past = self._find(each.tp.topic)
            if past is not None and starts[each.tp].offset > each.start:
                past.load()

    def _cut(self, wanted: OffsetRange) -> HistoryCut:
        return cut(wanted, self._held(wanted.tp))

    def _files(self, wanted: OffsetRange) -> PastFiles:
        past = self._find(wanted.tp.topic)
        assert past is not None, "only ranges that a table holds"
        return past.files(wanted)

    def _held(self, partition: TopicPartition) -> HeldRange | None:
        past = self._find(partition.topic)
        return None if past is None else past.held.get(partition.partition)

    def _find(self, topic: str) -> "_Past | None":
        """None: this topic has no table, so that only its log is read."""
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

    def _checked(self, topic: str, store: TableStore) -> "_Past":
        reason = _why_not(store.spec, topic, self._topic_id(topic))
        if reason is not None:
            raise BadOption(OPTION, self._folder, f"the table in {store.location} {reason}")
        return _Past(store)

    def _topic_id(self, topic: str) -> str | None:
        found = self._client.metadata([topic]).topics[topic].topic_id
        return None if found is None else str(found)


class _Past:
    """One table and its dead letters, which are records of the topic all the same."""

    def __init__(self, store: TableStore) -> None:
        dead = find_store(dead_letters_of(store.location))
        self._stores = [store] if dead is None else [store, dead]
        self.held = store.state.held

    def load(self) -> None:
        for store in self._stores:
            store.load()
        self.held = self._stores[0].state.held

    def files(self, wanted: OffsetRange) -> PastFiles:
        self.load()
        found = []
        for store in self._stores:
            inside = parts_within(store.parts(), wanted)
            found += [LocatedPart(each, store.path_of(each)) for each in inside]
        return PastFiles(tuple(found), self._stores[0].schema)

    def first_at(self, partition: TopicPartition, time_ms: int) -> int | None:
        number = partition.partition
        if number not in self.held:
            return None
        past = self.files(OffsetRange(partition, *self.held[number]))
        keep = pc.field(TIMESTAMP) >= pa.scalar(time_ms * 1000, past.schema.field(TIMESTAMP).type)
        late = [each for each in past.files if (each.part.last_time_us or 0) >= time_ms * 1000]
        firsts = []
        for each in late:
            rows = read_columns(each, past.schema, [OFFSET], keep)
            if rows.num_rows:
                firsts.append(pc.min(rows.column(OFFSET)).as_py())
        return min(firsts, default=None)


def _why_not(spec: TableSpec, topic: str, topic_id: str | None) -> str | None:
    if spec.topic != topic:
        return f"is of topic {spec.topic!r}, not of {topic!r}"
    if None not in (spec.topic_id, topic_id) and spec.topic_id != topic_id:
        return "is of an earlier topic of the same name"
    if spec.upserts:
        return "has the latest row of each key, not every record"
    if not spec.keeps_value:
        return "was made without the values as they came (--drop-value)"
    return None
