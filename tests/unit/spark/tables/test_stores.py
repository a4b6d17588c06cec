"""The contract of the three formats: atomic commits that conflict with concurrent changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark.tables.errors import BadTableOption, CommitConflict, TableError, TableMissing
from penstock.spark.tables.part_writer import PartWriter
from penstock.spark.tables.parts import HeldRange, Part, TableChange
from penstock.spark.tables.rules import write_rules
from penstock.spark.tables.spec import (
    TableFormat,
    TableSpec,
    ValueKind,
    differences,
    parse_spec,
    read_spec,
    write_spec,
)
from penstock.spark.tables.store import TableStore, create_store, get_store
from penstock.spark.tables.table_schema import table_schema, value_fields

DAY_MS = 86_400_000


@pytest.fixture(params=list(TableFormat))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TableStore]:
    spec = TableSpec(
        topic="orders",
        format=request.param,
        value=ValueKind.JSON,
        columns="n INT, s STRUCT<x: INT>",
        partition_by=("day(_timestamp)",),
    )
    made = create_store(tmp_path / "orders", spec, table_schema(spec, value_fields(spec)))
    yield made
    made.close()


def write(store: TableStore, first: int, rows: int) -> list[Part]:
    """Write files as a task does, without a commit."""
    offsets = list(range(first, first + rows))
    times = pa.array([offset * DAY_MS * 1000 for offset in offsets], pa.timestamp("us", tz="UTC"))
    table = pa.table({"_offset": offsets, "_timestamp": times, "n": pa.array(offsets, pa.int32())})
    table = table.append_column("_partition", pa.array([0] * rows, pa.int32()))
    writer = PartWriter(write_rules(store, 10**9), 0)
    writer.add(table)
    return writer.close()


def rows_of(store: TableStore) -> list[int]:
    """Return the offsets of all rows, as any Parquet reader finds them in the table's files."""
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(store.path_of(part)).read() for part in store.parts()]
    return sorted(offset for table in tables for offset in table.column("_offset").to_pylist())


def test_files_and_offsets_are_committed_together(store: TableStore) -> None:
    assert store.state.held == {}
    store.commit(TableChange(write(store, 0, 3), [], {0: HeldRange(0, 3), 1: HeldRange(7, 7)}))
    again = get_store(store.location)
    assert again.state.held == {0: HeldRange(0, 3), 1: HeldRange(7, 7)}
    assert rows_of(again) == [0, 1, 2]
    first, *_ = sorted(again.parts(), key=lambda part: part.first_offset)
    assert (first.rows, first.topic_partition, first.last_offset) == (1, 0, 0)
    assert dict(first.values) == {"timestamp_day": "1970-01-01"}
    assert first.first_time_us == first.last_time_us == 0
    assert again.spec == store.spec
    assert again.schema == store.schema
    again.close()


def test_commit_on_a_stale_version_conflicts(store: TableStore) -> None:
    rival = get_store(store.location)
    store.commit(TableChange(write(store, 0, 3), [], {0: HeldRange(0, 3)}))
    with pytest.raises(CommitConflict, match="changed concurrently"):
        rival.commit(TableChange(write(rival, 0, 3), [], {0: HeldRange(0, 3)}))
    rival.load()
    assert rows_of(rival) == [0, 1, 2]
    rival.commit(TableChange([], [], {0: HeldRange(0, 9)}))
    with pytest.raises(CommitConflict):
        store.commit(TableChange([], [], {0: HeldRange(0, 4)}))  # a conflict even without files
    store.load()
    assert store.state.held == {0: HeldRange(0, 9)}
    rival.close()


def test_files_are_replaced_in_one_commit(store: TableStore) -> None:
    store.commit(TableChange(write(store, 0, 2), [], {0: HeldRange(0, 2)}))
    old = store.parts()
    store.commit(TableChange(write(store, 0, 4), old, {0: HeldRange(0, 4)}))
    assert rows_of(store) == [0, 1, 2, 3]
    assert not {part.path for part in old} & {part.path for part in store.parts()}


def test_columns_are_added_and_structs_grow(store: TableStore) -> None:
    inner = [pa.field("x", pa.int32()), pa.field("y", pa.string())]
    store.add_columns([pa.field("extra", pa.float64()), pa.field("s", pa.struct(inner))])
    again = get_store(store.location)
    assert again.schema.field("extra").type == pa.float64()
    assert again.schema.field("s").type == pa.struct(inner)
    store.commit(TableChange(write(store, 0, 1), [], {0: HeldRange(0, 1)}))
    assert rows_of(store) == [0]
    again.close()


def test_columns_added_concurrently_conflict(store: TableStore) -> None:
    rival = get_store(store.location)
    store.add_columns([pa.field("extra", pa.float64())])
    with pytest.raises(CommitConflict, match="changed concurrently"):
        rival.add_columns([pa.field("extra", pa.string())])
    rival.load()
    assert rival.schema == store.schema
    assert rival.schema.field("extra").type == pa.float64()
    rival.close()


def test_vacuum_deletes_old_uncommitted_files(store: TableStore) -> None:
    store.commit(TableChange(write(store, 0, 1), [], {0: HeldRange(0, 1)}))
    (left,) = write(store, 5, 1)
    path = store.location / left.path
    now_ms = int(path.stat().st_mtime * 1000)
    assert store.vacuum(DAY_MS, now_ms) == 0
    assert path.exists()
    assert store.vacuum(0, now_ms + 1) == 1
    assert not path.exists()
    assert rows_of(store) == [0]


def test_folder_with_other_content_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "precious").touch()
    spec = TableSpec(topic="orders", format=TableFormat.PARQUET)
    with pytest.raises(TableError, match="not a Penstock table"):
        create_store(tmp_path / "orders", spec, table_schema(spec, []))
    with pytest.raises(TableMissing, match="penstock table sync"):
        get_store(tmp_path / "orders")


def test_interrupted_move_is_completed_by_the_next_commit(tmp_path: Path) -> None:
    """A crash between the commit and the move of its files: the table has them anyway."""
    spec = TableSpec(topic="orders", format=TableFormat.PARQUET)
    store = create_store(tmp_path / "orders", spec, table_schema(spec, []))
    (part,) = write(store, 0, 1)
    store.commit(TableChange([part], [], {0: HeldRange(0, 1)}))
    final = store.location / store.parts()[0].path
    aside = store.location / part.path
    final.rename(aside)  # as before the move
    again = get_store(store.location)
    assert rows_of(again) == [0]
    again.commit(TableChange(write(again, 1, 1), [], {0: HeldRange(0, 2)}))
    assert final.exists()
    assert not aside.exists()
    assert rows_of(again) == [0, 1]


def test_specification_round_trips() -> None:
    spec = TableSpec(
        topic="t",
        format=TableFormat.DELTA,
        topic_id="id",
        value=ValueKind.AVRO,
        avro={"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]},
        skip_bytes=5,
        partition_by=("a", "day(_timestamp)"),
    )
    assert read_spec(write_spec(spec)) == spec
    assert differences(spec, spec) == []


def test_differences_name_what_cannot_change() -> None:
    kept = parse_spec({"topic": "t", "format": "delta", "value": "json"})
    same = parse_spec({"topic": "t", "format": "delta", "value": "json", "bad_values": "fail"})
    assert differences(kept, same) == []
    other = parse_spec({"topic": "t", "format": "iceberg", "value": "text"})
    assert len(differences(kept, other)) == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "orc"}, "write one of delta, iceberg, parquet"),
        ({"columns": "a INT"}, "for JSON values"),
        ({"value": "avro"}, "need each other"),
        ({"keeps_value": False}, "do not drop them"),
        ({"upserts": True, "partition_by": ("a",)}, "own partitions"),
        ({"partition_by": ("f(a)",)}, "cannot be partitioned by"),
    ],
)
def test_contradicting_options_are_rejected(options: dict[str, object], expected: str) -> None:
    with pytest.raises(BadTableOption) as refused:
        parse_spec({"topic": "t", "format": "delta", **options})
    assert expected in str(refused.value)
