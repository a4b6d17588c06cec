"""Changes become the versions of a table's rows; the same changes again change nothing."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.merge_rows import (
    DELETED,
    check_keys,
    next_versions,
    not_older,
    split_deleted,
    versions_schema,
)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int64())])
CHANGES = SCHEMA.append(pa.field(DELETED, pa.bool_()))
VERSIONS = versions_schema(SCHEMA, "at")


def changes(*rows: tuple[int, str | None, int]) -> pa.Table:
    """A row without a name deletes."""
    columns = [{"id": key, "name": name, "at": at, DELETED: name is None} for key, name, at in rows]
    return pa.Table.from_pylist(columns, CHANGES)


def versions(*rows: tuple[int, str, int, int | None]) -> pa.Table:
    columns = [
        {
            "id": key,
            "name": name,
            "at": start,
            "valid_from": start,
            "valid_to": end,
            "is_current": end is None,
        }
        for key, name, start, end in rows
    ]
    return pa.Table.from_pylist(columns, VERSIONS)


NONE = versions()


def after(stored: pa.Table, changed: pa.Table) -> list[tuple[Any, ...]]:
    """The table after the merge, as the formats do it: by key and valid_from."""
    rows = {(row["id"], row["valid_from"]): row for row in stored.to_pylist()}
    for row in next_versions(stored, changed, ["id"], "at").to_pylist():
        rows[row["id"], row["valid_from"]] = row
    return sorted(
        (row["id"], row["name"], row["valid_from"], row["valid_to"]) for row in rows.values()
    )


def test_each_change_closes_the_version_before_it() -> None:
    first = after(NONE, changes((1, "a", 10), (2, "x", 11), (1, "b", 20)))
    assert first == [(1, "a", 10, 20), (1, "b", 20, None), (2, "x", 11, None)]
    stored = versions(*first)
    assert after(stored, changes((1, "c", 30), (2, None, 31))) == [
        (1, "a", 10, 20), (1, "b", 20, 30), (1, "c", 30, None), (2, "x", 11, 31),
    ]  # fmt: skip


def test_a_key_may_come_back_after_its_deletion() -> None:
    stored = versions((1, "a", 10, 20))
    assert after(stored, changes((1, "b", 40))) == [(1, "a", 10, 20), (1, "b", 40, None)]


def test_a_late_change_is_put_between_the_versions() -> None:
    stored = versions((1, "a", 10, 30), (1, "c", 30, None))
    assert after(stored, changes((1, "b", 20))) == [
        (1, "a", 10, 20), (1, "b", 20, 30), (1, "c", 30, None),
    ]  # fmt: skip


def test_a_deletion_at_the_moment_of_a_version_leaves_it_valid_for_no_time() -> None:
    stored = versions((1, "a", 10, None))
    assert after(stored, changes((1, None, 10))) == [(1, "a", 10, 10)]


@pytest.mark.parametrize("seed", range(12))
def test_batches_in_any_order_and_twice_give_the_same_versions(seed: int) -> None:
    """Deletions among them come after the first version of their key."""
    choice = random.Random(seed)
    history = [(key, f"v{at}", at) for key in (1, 2) for at in choice.sample(range(10, 60), 6)]
    gone = [(key, None, 70 + key) for key in (1, 2) if choice.random() < 0.5]
    expected = after(NONE, changes(*sorted([*history, *gone], key=lambda row: row[2])))
    choice.shuffle(history)
    stored: list[tuple[Any, ...]] = []
    for batch in (history[:5], history[5:], gone, history[3:8], gone):
        stored = after(versions(*stored), changes(*batch))
    assert stored == expected


def test_nothing_is_written_for_changes_that_are_stored() -> None:
    stored = versions((1, "a", 10, None))
    assert next_versions(stored, changes((1, "a", 10)), ["id"], "at").num_rows == 0


def test_older_changes_do_not_replace_later_rows() -> None:
    stored = pa.table({"id": [1, 2], "at": [20, None]})
    kept = not_older(
        changes((1, "a", 19), (1, "b", 20), (2, "c", 1), (3, "d", 1)), stored, ["id"], "at"
    )
    assert kept.column("name").to_pylist() == ["b", "c", "d"]


def test_deleted_rows_are_apart() -> None:
    kept, gone = split_deleted(changes((1, "a", 10), (2, None, 20)))
    assert (kept.column("id").to_pylist(), gone.column("id").to_pylist()) == ([1], [2])
    assert DELETED not in kept.column_names


def test_rows_without_key_or_order_and_taken_names_are_refused() -> None:
    without_key = pa.table({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(SparkSourceError, match="1 rows have no 'id', which is a key of the table"):
        check_keys(without_key, ["id"])
    with pytest.raises(SparkSourceError, match="has no 'at', which orders versions"):
        next_versions(NONE, changes((1, "a", None)), ["id"], "at")  # type: ignore[arg-type]
    with pytest.raises(SparkSourceError, match="columns valid_to, which scd2 adds: rename yours"):
        versions_schema(pa.schema([("at", pa.int64()), ("valid_to", pa.int64())]), "at")
