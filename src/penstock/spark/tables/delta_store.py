"""A Delta table, written with the package `deltalake` only: no JVM, no Spark.

The held offsets are stored as Delta's application transaction ids, two for each topic partition.
They are part of the commit that adds the files, and of every checkpoint of the table's log.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from penstock.spark.tables.errors import CommitConflict, TableError
from penstock.spark.tables.part_writer import Layout
from penstock.spark.tables.partitioning import as_text
from penstock.spark.tables.parts import HeldRange, Part, TableChange, TableState, write_held
from penstock.spark.tables.plain_schema import plain_schema
from penstock.spark.tables.spec import PROPERTY, TableSpec, read_spec, write_spec
from penstock.spark.tables.table_schema import OFFSET, PARTITION, TIMESTAMP, partition_fields_of

_START, _END = "penstock/{}/start", "penstock/{}/end"
_HOUR_MS = 3_600_000
_AS_LOADED = CommitProperties(max_commit_retries=0)  # a plan is valid only for the loaded version


class DeltaStore:
    layout = Layout(folder="data/", stores_partition_columns=False, names_folders=False)

    def __init__(self, table: DeltaTable, location: Path) -> None:
        self._table = table
        self.location = location
        self._spec = read_spec(_property(table, location))

    @classmethod
    def open(cls, location: Path) -> "DeltaStore":
        try:
            return cls(DeltaTable(location), location)
        except DeltaError as error:
            raise TableError(f"the Delta table in {location} cannot be read: {error}") from None

    @classmethod
    def create(cls, location: Path, spec: TableSpec, schema: pa.Schema) -> "DeltaStore":
        table = DeltaTable.create(
            location,
            schema=Schema.from_arrow(schema),
            partition_by=[partition_field.column for partition_field in partition_fields_of(spec)],
            name=spec.topic,
            configuration={PROPERTY: write_spec(spec)},
            raise_if_key_not_exists=False,  # a property of our own
        )
        return cls(table, location)

    @property
    def spec(self) -> TableSpec:
        return self._spec

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(pa.schema(self._table.schema().to_arrow()))

    @property
    def state(self) -> TableState:
        return TableState(self._table.version(), dict(self._held()))

    def _held(self) -> Iterator[tuple[int, HeldRange]]:
        for number in count():
            end = self._table.transaction_version(_END.format(number))
            start = self._table.transaction_version(_START.format(number))
            if start is None or end is None:
                return
            yield number, HeldRange(start, end)

    def load(self) -> None:
        self._table.update_incremental()

    def parts(self) -> list[Part]:
        rows = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        names = self._table.metadata().partition_columns
        return [_read_part(row, names) for row in rows]

    def path_of(self, part: Part) -> str:
        return str(self.location / part.path)

    def commit(self, change: TableChange) -> None:
        now_ms = time.time_ns() // 1_000_000
        removed = [_remove(part, change.is_new_data, now_ms) for part in change.removed]
        added = [_add(part, change.is_new_data, now_ms) for part in change.added]
        properties = CommitProperties(
            custom_metadata={"penstock.held": json.dumps(write_held(change.held))},
            max_commit_retries=_AS_LOADED.max_commit_retries,
            app_transactions=_transactions(change),
        )
        with self._commit_conflicts():
            self._table.create_write_transaction(
                [*removed, *added],
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=properties,
            )
        self.load()

    @contextmanager
    def _commit_conflicts(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise CommitConflict(f"{self.location} was changed concurrently: {error}") from None

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        schema = Schema.from_arrow(pa.schema(list(fields)))
        with self._commit_conflicts():
            self._table.alter.add_columns(schema.fields, commit_properties=_AS_LOADED)
        self.load()

    def vacuum(self, age_ms: int, now_ms: int) -> int:
        deleted = self._table.vacuum(
            retention_hours=age_ms // _HOUR_MS,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        self.load()
        return len(deleted)

    def close(self) -> None:
        """Does nothing: no resources are held."""


def _property(table: DeltaTable, location: Path) -> str:
    spec = table.metadata().configuration.get(PROPERTY)
    if spec is None:
        raise TableError(
            f"the Delta table in {location} was not created by Penstock: use another folder"
        )
    return spec


def _transactions(change: TableChange) -> list[Transaction]:
    return [
        Transaction(name.format(number), at)
        for number, held in change.held.items()
        for name, at in ((_START, held.start), (_END, held.end))
    ]


def _add(part: Part, is_new_data: bool, now_ms: int) -> AddAction:
    return AddAction(
        path=part.path,
        size=part.size_bytes,
        partition_values=dict(part.values),
        modification_time=now_ms,
        data_change=is_new_data,
        stats=json.dumps(_statistics(part)),
    )


def _remove(part: Part, is_new_data: bool, now_ms: int) -> RemoveAction:
    return RemoveAction(
        path=part.path,
        data_change=is_new_data,
        deletion_timestamp=now_ms,
        size=part.size_bytes,
        partition_values=dict(part.values),
    )


def _statistics(part: Part) -> dict[str, Any]:
    """Statistics of the record columns. Times are rounded outwards to whole milliseconds."""
    least: dict[str, Any] = {OFFSET: part.first_offset}
    most: dict[str, Any] = {OFFSET: part.last_offset}
    if part.topic_partition is not None and PARTITION not in dict(part.values):
        least[PARTITION] = most[PARTITION] = part.topic_partition
    if part.first_time_us is not None and part.last_time_us is not None:
        least[TIMESTAMP] = _time_text(part.first_time_us // 1000)
        most[TIMESTAMP] = _time_text(-(-part.last_time_us // 1000))
    return {"numRecords": part.rows, "minValues": least, "maxValues": most, "nullCount": {}}


def _time_text(time_ms: int) -> str:
    text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _read_part(row: dict[str, Any], partition_columns: Sequence[str]) -> Part:
    values = tuple((name, as_text(row.get(f"partition.{name}"))) for name in partition_columns)
    least, most = row.get(f"min.{PARTITION}"), row.get(f"max.{PARTITION}")
    value = dict(values).get(PARTITION)
    number = int(value) if value is not None else (least if least == most else None)
    return Part(
        path=row["path"],
        rows=row["num_records"] or 0,
        size_bytes=row["size_bytes"],
        values=values,
        topic_partition=number,
        first_offset=_or(row.get(f"min.{OFFSET}"), 0),
        last_offset=_or(row.get(f"max.{OFFSET}"), 2**63 - 1),
        first_time_us=_time_us(row.get(f"min.{TIMESTAMP}")),
        last_time_us=_time_us(row.get(f"max.{TIMESTAMP}")),
    )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _time_us(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1_000_000)
