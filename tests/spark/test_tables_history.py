"""Old records from a table and live ones from the topic together: `option("history", ...)`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.spark.synced_tables import open_synced, run_here
from tests.spark.topics import Sent, create_topic, delete_records, delete_topic, send

import penstock
from penstock.spark.data_source import find_history
from penstock.spark.errors import DataLoss, SparkSourceError
from penstock.spark.source.batch_reader import PenstockReader
from penstock.spark.source.options import ReadMode, parse_source_options
from penstock.spark.source.stream_reader import PenstockStreamReader
from penstock.spark.tables.history_task import ReadHistory
from penstock.spark.tables.maintenance import compact_table
from penstock.spark.tables.rules import SyncRules
from penstock.spark.tables.spec import TableFormat

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
START_MS = 1_700_000_000_000


def numbered(first: int, count: int, *, partitions: int = 2) -> list[Sent]:
    return [
        Sent(
            b'{"n": %d}' % n if n % 9 else b"no JSON",
            None if n % 5 else b"key",
            n % partitions,
            START_MS + n,
            [("h", None)] if n % 7 == 0 else (),
        )
        for n in range(first, first + count)
    ]


class Query:
    """Uses the source as Spark does, in this process."""

    def __init__(self, broker: penstock.Broker, topic: str, **options: str) -> None:
        self._options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }

    def batch(self) -> list[dict[str, Any]]:
        reader = self._reader()
        return _read(reader, reader.partitions())

    def past_ranges(self) -> list[tuple[int, int]]:
        reader = self._reader()
        parts = [
            partition for partition in reader.partitions() if isinstance(partition, ReadHistory)
        ]
        return [(part.wanted.start, part.wanted.end) for part in parts]

    def stream(self) -> PenstockStreamReader:
        options = parse_source_options(self._options, ReadMode.STREAM)
        return PenstockStreamReader(options, COLUMNS, find_history(options))

    def _reader(self) -> PenstockReader:
        options = parse_source_options(self._options, ReadMode.BATCH)
        return PenstockReader(options, COLUMNS, find_history(options))


def _read(reader: Any, parts: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for part in parts:
        elsewhere, work = pickle.loads(pickle.dumps((reader, part)))
        for batch in elsewhere.read(work):
            assert batch.schema.names == list(COLUMNS)
            rows += batch.to_pylist()
    return rows


def by_position(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def in_order(rows: list[dict[str, Any]]) -> bool:
    seen: dict[int, int] = {}
    for row in rows:
        if seen.get(row["partition"], -1) >= row["offset"]:
            return False
        seen[row["partition"]] = row["offset"]
    return True


@pytest.mark.parametrize("kind", list(TableFormat))
def test_records_deleted_by_retention_are_read_from_the_table(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    """Includes dead letters. Half is deleted, and some records came after the last commit."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=2)
    send(servers, topic_name, numbered(0, 200))
    options = {"format": kind, "value": "json", "columns": "n BIGINT"}
    table = open_synced(broker, tmp_path, topic_name, most_records=37, options=options)
    table.drain()
    assert compact_table(table.tables.store, run_here, SyncRules(), least_files=2) > 0
    send(servers, topic_name, numbered(200, 20))
    whole = by_position(Query(broker, topic_name, includeHeaders="true").batch())
    assert len(whole) == 220
    delete_records(servers, topic_name, {0: 50, 1: 60})

    query = Query(broker, topic_name, includeHeaders="true", history=str(tmp_path))
    assert query.past_ranges() == [(0, 100), (0, 100)]
    rows = query.batch()
    assert in_order(rows)
    assert by_position(rows) == whole
    of_table = Query(broker, topic_name, history=str(tmp_path / topic_name))
    assert len(of_table.batch()) == 220

    later = Query(broker, topic_name, history=str(tmp_path), startingTimestamp=str(START_MS + 30))
    assert by_position(later.batch()) == [
        row for row in whole if row["timestamp"].timestamp() * 1000 >= START_MS + 30
    ]
    table.tables.close()


def test_stream_starts_in_the_table_and_continues_in_the_topic(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=2)
    send(servers, topic_name, numbered(0, 100))
    table = open_synced(broker, tmp_path, topic_name, options={"format": "parquet"})
    table.drain()
    delete_records(servers, topic_name, {0: 50, 1: 30})
    reader = Query(broker, topic_name, history=str(tmp_path), maxOffsetsPerTrigger="30").stream()
    start, rows = reader.initialOffset(), []
    for number in range(100, 103):
        send(servers, topic_name, numbered(number, 1))
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            break
        rows += _read(reader, reader.partitions(start, end))
        start = end
    indexes = [(row["partition"], row["offset"]) for row in rows]
    assert len(set(indexes)) == len(indexes) == 103
    assert in_order(rows)


def test_stream_reads_from_the_table_what_was_deleted_meanwhile(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, numbered(0, 10, partitions=1))
    table = open_synced(broker, tmp_path, topic_name, options={"format": "parquet"})
    table.drain()
    reader = Query(broker, topic_name, history=str(tmp_path)).stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(_read(reader, reader.partitions(start, end))) == 10
    send(servers, topic_name, numbered(10, 10, partitions=1))
    table.drain()
    delete_records(servers, topic_name, {0: 20})
    last = reader.latestOffset(end, reader.getDefaultReadLimit())
    rows = _read(reader, reader.partitions(end, last))
    assert [row["offset"] for row in rows] == list(range(10, 20))


def test_gap_between_table_and_topic_is_data_loss(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, numbered(0, 10, partitions=1))
    open_synced(broker, tmp_path, topic_name, options={"format": "parquet"}).drain()
    send(servers, topic_name, numbered(10, 20, partitions=1))
    delete_records(servers, topic_name, {0: 20})
    query = Query(broker, topic_name, history=str(tmp_path))
    with pytest.raises(DataLoss, match="offsets 10 to 19"):
        query.batch()
    borne = Query(broker, topic_name, history=str(tmp_path), failOnDataLoss="false").batch()
    assert [row["offset"] for row in borne] == [*range(10), *range(20, 30)]


def test_tables_that_are_not_a_history_are_rejected(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"{}", b"k")])
    open_synced(
        broker, tmp_path / "a", topic_name, options={"format": "parquet", "upserts": True}
    ).drain()
    with pytest.raises(SparkSourceError, match="has only the latest row of each key"):
        Query(broker, topic_name, history=str(tmp_path / "a")).batch()
    options = {"format": "parquet", "value": "json", "columns": "n INT", "keeps_value": False}
    open_synced(broker, tmp_path / "b", topic_name, options=options).drain()
    with pytest.raises(SparkSourceError, match="without the raw values"):
        Query(broker, topic_name, history=str(tmp_path / "b")).batch()
    with pytest.raises(SparkSourceError, match="there is no such folder"):
        Query(broker, topic_name, history=str(tmp_path / "c")).batch()
    open_synced(broker, tmp_path / "d", topic_name, options={"format": "parquet"}).drain()
    delete_topic(servers, topic_name)
    create_topic(servers, topic_name)
    with pytest.raises(SparkSourceError, match="belongs to an earlier topic of the same name"):
        Query(broker, topic_name, history=str(tmp_path / "d")).batch()
