"""An Iceberg table, written with the package `pyiceberg`: no JVM, no Spark.

The tables of a folder share a catalog, `catalog.db` beside them (SQLite); a commit swaps the
table's metadata in it. The held offsets are a table property that the same swap changes.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.types import PrimitiveType

from penstock.spark.tables.errors import CommitConflict, TableError
from penstock.spark.tables.part_writer import Layout
from penstock.spark.tables.partitioning import as_text
from penstock.spark.tables.parts import Part, TableChange, TableState, read_held, write_held
from penstock.spark.tables.plain_schema import plain_schema
from penstock.spark.tables.spec import PROPERTY, TableSpec, read_spec, write_spec
from penstock.spark.tables.table_schema import OFFSET, PARTITION, TIMESTAMP, partition_fields_of

CATALOG, NAMESPACE = "catalog.db", "penstock"
_HELD = "penstock.held"
_NAMES = "schema.name-mapping.default"
_SETTINGS = {
    "commit.retry.num-retries": "0",  # a plan is valid only for the loaded version
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergStore:
    layout = Layout(folder="data/", stores_partition_columns=True, names_folders=False)

    def __init__(self, catalog: SqlCatalog, table: Table, location: Path) -> None:
        self._catalog = catalog
        self._table = table
        self.location = location
        spec = table.properties.get(PROPERTY)
        if spec is None:
            raise TableError(f"the Iceberg table in {location} was not created by Penstock")
        self._spec = read_spec(spec)

    @classmethod
    def open(cls, location: Path) -> "IcebergStore":
        catalog = open_catalog(location.parent)
        return cls(catalog, catalog.load_table((NAMESPACE, location.name)), location)

    @classmethod
    def create(cls, location: Path, spec: TableSpec, schema: pa.Schema) -> "IcebergStore":
        catalog = open_catalog(location.parent)
        catalog.create_namespace_if_not_exists(NAMESPACE)
        properties = {**_SETTINGS, PROPERTY: write_spec(spec)}
        with catalog.create_table_transaction(
            (NAMESPACE, location.name),
            schema,
            location=str(location.absolute()),
            properties=properties,
        ) as transaction:
            with transaction.update_spec() as update:
                for partition_field in partition_fields_of(spec):
                    update.add_identity(partition_field.column)
            transaction.set_properties({_NAMES: _names(transaction)})
        return cls.open(location)

    @property
    def spec(self) -> TableSpec:
        return self._spec

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(schema_to_pyarrow(self._table.schema(), include_field_ids=False))

    @property
    def state(self) -> TableState:
        held = json.loads(self._table.properties.get(_HELD, "{}"))
        return TableState(self._table.metadata_location, read_held(held))

    def load(self) -> None:
        self._table.refresh()

    def parts(self) -> list[Part]:
        return [self._read_part(file) for file in self._data_files()]

    def _data_files(self) -> Iterator[DataFile]:
        return (scan_task.file for scan_task in self._table.scan().plan_files())

    def path_of(self, part: Part) -> str:
        return str(self.location.absolute() / part.path)

    def commit(self, change: TableChange) -> None:
        removed = {self.path_of(part) for part in change.removed}
        with self._commit_conflicts(), self._table.transaction() as transaction:
            transaction.set_properties({_HELD: json.dumps(write_held(change.held))})
            # Even without files, because only a snapshot conflicts with a concurrent snapshot.
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in self._data_files() if removed else ():
                    if _path(file) in removed:
                        snapshot.delete_data_file(file)
                for part in change.added:
                    snapshot.append_data_file(self._data_file(transaction, part))

    @contextmanager
    def _commit_conflicts(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            self.load()
            raise CommitConflict(f"{self.location} was changed concurrently: {error}") from None

    def _data_file(self, transaction: Transaction, part: Part) -> DataFile:
        return parquet_file_to_data_file(
            self._table.io, transaction.table_metadata, self.path_of(part)
        )

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        with self._commit_conflicts(), self._table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema(list(fields)))
            transaction.set_properties({_NAMES: _names(transaction)})

    def vacuum(self, age_ms: int, now_ms: int) -> int:
        """Expires old snapshots, then deletes files that no snapshot refers to."""
        limit = datetime.fromtimestamp((now_ms - age_ms) / 1000, UTC).replace(tzinfo=None)
        self._table.maintenance.expire_snapshots().older_than(limit).commit()
        self.load()
        used = set(_used_files(self._table))
        folder = self.location.absolute() / self.layout.folder
        unused = [path for path in folder.rglob("part-*.parquet") if str(path) not in used]
        old = [path for path in unused if now_ms - path.stat().st_mtime * 1000 >= age_ms]
        for path in old:
            path.unlink()
        return len(old)

    def close(self) -> None:
        self._catalog.close()

    def _read_part(self, file: DataFile) -> Part:
        bounds = _Bounds(self._table, file)
        names = [partition_field.column for partition_field in partition_fields_of(self._spec)]
        values = tuple(
            (name, _partition_text(self._table, name, file.partition[index]))
            for index, name in enumerate(names)
        )
        number, last_number = bounds.of(PARTITION)
        first, last = bounds.of(OFFSET)
        first_time, last_time = bounds.of(TIMESTAMP)
        return Part(
            path=str(Path(_path(file)).relative_to(self.location.absolute())),
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
            values=values,
            topic_partition=number if number == last_number else None,
            first_offset=0 if first is None else first,
            last_offset=2**63 - 1 if last is None else last,
            first_time_us=first_time,
            last_time_us=last_time,
        )


def open_catalog(folder: Path) -> SqlCatalog:
    folder = folder.absolute()
    return SqlCatalog(NAMESPACE, uri=f"sqlite:///{folder / CATALOG}", warehouse=str(folder))


class _Bounds:
    """The lower and upper bound of a column in a file, as integers."""

    def __init__(self, table: Table, file: DataFile) -> None:
        self._schema = table.schema()
        self._file = file

    def of(self, column: str) -> tuple[int | None, int | None]:
        field = self._schema.find_field(column)
        assert isinstance(field.field_type, PrimitiveType)
        sides = (self._file.lower_bounds, self._file.upper_bounds)
        bounds = [(side or {}).get(field.field_id) for side in sides]
        least, most = (
            None if bound is None else _number(field.field_type, bound) for bound in bounds
        )
        return least, most


def _number(kind: PrimitiveType, written: bytes) -> int:
    number: Any = from_bytes(kind, written)
    return int(number)


def _partition_text(table: Table, name: str, value: Any) -> str | None:
    """The value as text. Iceberg stores dates as days since 1970."""
    kind = schema_to_pyarrow(table.schema(), include_field_ids=False).field(name).type
    return as_text(
        pa.scalar(value, pa.int32()).cast(kind).as_py() if _is_day(kind, value) else value
    )


def _is_day(kind: pa.DataType, value: Any) -> bool:
    return bool(pa.types.is_date(kind)) and isinstance(value, int)


def _names(transaction: Transaction) -> str:
    """The name mapping: our files carry no Iceberg field ids, so columns are found by name."""
    return transaction.table_metadata.schema().name_mapping.model_dump_json()


def _path(file: DataFile) -> str:
    path: str = file.file_path
    return unquote(urlsplit(path).path) if "://" in path else path


def _used_files(table: Table) -> Iterator[str]:
    """The data files of all remaining snapshots."""
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield _path(entry.data_file)
