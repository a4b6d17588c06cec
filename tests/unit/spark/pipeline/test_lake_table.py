"""Delta and Iceberg tables: rows appended, upserted and versioned, each micro-batch once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.lake_table import BatchMark, write_lake
from penstock.spark.pipeline.merge_rows import DELETED
from penstock.spark.pipeline.spec import LakeFormat, LakeTarget, Merge, MergeKind

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
SCHEMA = pa.schema(
    [("Shop", pa.large_string()), ("id", pa.int64()), ("at", pa.timestamp("us", tz="Europe/Paris"))]
)
CHANGES = SCHEMA.append(pa.field(DELETED, pa.bool_()))


@pytest.fixture(params=list(LakeFormat))
def kind(request: pytest.FixtureRequest) -> LakeFormat:
    return LakeFormat(request.param)


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def rows(*of: tuple[str, int, int], deleted: bool | None = False) -> pa.Table:
    """(shop, id, minute); without the column for merges if `deleted` is None."""
    columns = [
        {"Shop": shop, "id": key, "at": minute(at), DELETED: deleted} for shop, key, at in of
    ]
    return pa.Table.from_pylist(columns, SCHEMA if deleted is None else CHANGES)


def target(
    folder: Path, kind: LakeFormat, merge: MergeKind | None = None, order: str | None = None
) -> LakeTarget:
    keys = ("Shop", "id")
    rule = None if merge is None else Merge(kind=merge, keys=keys, line=1, order=order, delete=None)
    return LakeTarget(path=str(folder / "t"), format=kind, partition_by=("Shop",), merge=rule)


def stored(folder: Path, kind: LakeFormat) -> list[dict[str, Any]]:
    """Read as other programs do."""
    if kind is LakeFormat.DELTA:
        table = DeltaTable(folder / "t").to_pyarrow_table()
    else:
        catalog = SqlCatalog("penstock", uri=f"sqlite:///{folder}/catalog.db")
        catalog_table = catalog.load_table(("penstock", "t"))
        table = catalog_table.scan().to_arrow()
    return sorted(table.to_pylist(), key=lambda row: (row["Shop"], row["id"], row["at"]))


def seen(folder: Path, kind: LakeFormat) -> list[tuple[str, int, datetime]]:
    return [(row["Shop"], row["id"], row["at"]) for row in stored(folder, kind)]


def test_a_batch_that_is_run_again_is_appended_once(tmp_path: Path, kind: LakeFormat) -> None:
    into = target(tmp_path, kind)
    for batch in (0, 0, 1, 1, 0):
        write_lake(into, rows(("a", batch, batch), deleted=None), BatchMark("q", batch), {})
    assert seen(tmp_path, kind) == [("a", 0, minute(0)), ("a", 1, minute(1))]
    write_lake(into, rows(("a", 2, 2), deleted=None), BatchMark("another query", 0), {})
    assert len(seen(tmp_path, kind)) == 3


def test_rows_replace_those_of_their_key_and_may_delete_it(
    tmp_path: Path, kind: LakeFormat
) -> None:
    into = target(tmp_path, kind, MergeKind.UPSERT, "at")
    write_lake(into, rows(("a", 1, 1), ("b", 1, 1), ("a", 2, 5)), BatchMark("q", 0), {})
    changed = pa.concat_tables([rows(("a", 1, 3), ("a", 2, 4)), rows(("b", 1, 2), deleted=True)])
    for _ in range(2):
        write_lake(into, changed, BatchMark("q", 1), {})
    # (a, 2) has a later row already.
    assert seen(tmp_path, kind) == [("a", 1, minute(3)), ("a", 2, minute(5))]
    write_lake(into, rows(), BatchMark("q", 2), {})
    assert len(seen(tmp_path, kind)) == 2


def test_versions_are_closed_and_added(tmp_path: Path, kind: LakeFormat) -> None:
    into = target(tmp_path, kind, MergeKind.SCD2, "at")
    write_lake(into, rows(("a", 1, 1), ("a", 2, 1), ("a", 1, 2)), BatchMark("q", 0), {})
    gone = pa.concat_tables([rows(("a", 1, 4)), rows(("a", 2, 3), deleted=True)])
    write_lake(into, gone, BatchMark("q", 1), {})
    write_lake(into, gone, BatchMark("a query from its start", 0), {})
    assert [
        (row["id"], row["valid_from"], row["valid_to"], row["is_current"])
        for row in stored(tmp_path, kind)
    ] == [
        (1, minute(1), minute(2), False),
        (1, minute(2), minute(4), False),
        (1, minute(4), None, True),
        (2, minute(1), minute(3), False),
    ]


def test_new_columns_are_added(tmp_path: Path, kind: LakeFormat) -> None:
    into = target(tmp_path, kind, MergeKind.UPSERT)
    write_lake(into, rows(("a", 1, 1), ("a", 2, 1)), BatchMark("q", 0), {})
    more = rows(("a", 2, 2)).append_column("note", pa.array(["new"]))
    write_lake(into, more, BatchMark("q", 1), {})
    write_lake(into, rows(("a", 3, 3)), BatchMark("q", 2), {})
    assert [row["note"] for row in stored(tmp_path, kind)] == [None, "new", None]


@pytest.mark.parametrize("merge", list(MergeKind))
def test_keys_are_text_and_bytes(tmp_path: Path, kind: LakeFormat, merge: MergeKind) -> None:
    for number, key in enumerate(["name", "code"]):
        rule = Merge(kind=merge, keys=(key,), line=1, order="at", delete=None)
        path = tmp_path / f"t{number}"
        into = LakeTarget(path=str(path / "t"), format=kind, partition_by=(), merge=rule)
        for batch in range(3):
            changes = pa.table({
                "name": ["o'neil", 'say "hi"'], "code": [b"\x00", b"'"], "Shop": ["a", "b"],
                "id": [1, 2], "at": [minute(batch)] * 2, DELETED: [False, False],
            })  # fmt: skip
            write_lake(into, changes, BatchMark("q", batch), {})
        expected = [2] if merge is MergeKind.UPSERT else [0, 1, 2]
        assert seen(path, kind) == [
            (shop, number, minute(at)) for shop, number in (("a", 1), ("b", 2)) for at in expected
        ]


def test_closed_versions_keep_columns_that_changes_no_longer_have(
    tmp_path: Path, kind: LakeFormat
) -> None:
    into = target(tmp_path, kind, MergeKind.SCD2, "at")
    first = rows(("a", 1, 1)).append_column("note", pa.array(["kept"]))
    write_lake(into, first, BatchMark("q", 0), {})
    write_lake(into, rows(("a", 1, 2)), BatchMark("q", 1), {})
    assert [(row["note"], row["valid_to"]) for row in stored(tmp_path, kind)] == [
        ("kept", minute(2)),
        (None, None),
    ]


def test_rows_of_another_type_are_refused(tmp_path: Path, kind: LakeFormat) -> None:
    into = target(tmp_path, kind, MergeKind.SCD2, "at")
    text = rows(("a", 1, 1)).append_column("note", pa.array(["text"]))
    write_lake(into, text, BatchMark("q", 0), {})
    number = rows(("a", 1, 2)).append_column("note", pa.array([5]))
    with pytest.raises(SparkSourceError, match=r"the rows do not fit the table in .*/t: "):
        write_lake(into, number, BatchMark("q", 1), {})


def test_other_keys_with_the_same_parts_stay(tmp_path: Path, kind: LakeFormat) -> None:
    into = target(tmp_path, kind, MergeKind.UPSERT, "at")
    all_four = rows(("a", 1, 1), ("a", 2, 2), ("b", 1, 3), ("b", 2, 4))
    write_lake(into, all_four, BatchMark("q", 0), {})
    changed = pa.concat_tables([rows(("a", 1, 5)), rows(("b", 2, 6), deleted=True)])
    write_lake(into, changed, BatchMark("q", 1), {})
    assert seen(tmp_path, kind) == [("a", 1, minute(5)), ("a", 2, minute(2)), ("b", 1, minute(3))]
