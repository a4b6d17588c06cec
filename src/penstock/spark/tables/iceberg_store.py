"""A table in Iceberg's format, by the package `pyiceberg`: no JVM, no Spark.

Tables of one folder share a catalog, `catalog.db` beside them (SQLite); Iceberg's commits are a
swap of the table's metadata in it. What the table holds is a property that the same swap changes.
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
from penstock.spark.tables.table_schema import OFFSET, PARTITION, TIMESTAMP, divisions_of

CATALOG, NAMESPACE = "catalog.db", "penstock"
_HELD = "penstock.held"
_NAMES = "schema.name-mapping.default"
_SETTINGS = {
    "commit.retry.num-retries": "0",  # what was planned is for the table as it was loaded
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergStore:
    layout = Layout(folder="data/", stores_divisions=True, names_folders=False)

    def __init__(self, catalog: SqlCatalog, table: Table, location: Path) -> None:
        self._catalog = catalog
        self._table = table
        self.location = location
        found = table.properties.get(PROPERTY)
        if found is None:
            raise TableError(f"the Iceberg table in {location} was not made by Penstock")
        self._spec = read_spec(found)

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
        ) as making:
            with making.update_spec() as update:
                for each in divisions_of(spec):
                    update.add_identity(each.column)
            making.set_properties({_NAMES: _names(making)})
        return cls.open(location)

    @property
    def spec(self) -> TableSpec:
        return self._spec

    @property
    def schema(self) -> pa.Schema:
        found = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        return plain_schema(found)

    @property
    def state(self) -> TableState:
        held = json.loads(self._table.properties.get(_HELD, "{}"))
        return TableState(self._table.metadata_location, read_held(held))

    def load(self) -> None:
        self._table.refresh()

    def parts(self) -> list[Part]:
        return [self._read_part(each) for each in self._data_files()]

    def _data_files(self) -> Iterator[DataFile]:
        return (each.file for each in self._table.scan().plan_files())

    def path_of(self, part: Part) -> str:
        return str(self.location.absolute() / part.path)

    def commit(self, change: TableChange) -> None:
        removed = {self.path_of(each) for each in change.removed}
        with self._conflicts_told(), self._table.transaction() as transaction:
            transaction.set_properties({_HELD: json.dumps(write_held(change.held))})
            # Even without files: only a snapshot is refused where somebody else made one.
            with transaction.update_snapshot().overwrite() as snapshot:
                for each in self._data_files() if removed else ():
                    if _path(each) in removed:
                        snapshot.delete_data_file(each)
                for part in change.added:
                    snapshot.append_data_file(self._data_file(transaction, part))

    @contextmanager
    def _conflicts_told(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            self.load()
            raise CommitConflict(f"{self.location} was changed by somebody else: {error}") from None

    def _data_file(self, transaction: Transaction, part: Part) -> DataFile:
        return parquet_file_to_data_file(
            self._table.io, transaction.table_metadata, self.path_of(part)
        )

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        with self._conflicts_told(), self._table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema(list(fields)))
            transaction.set_properties({_NAMES: _names(transaction)})

    def forget_older_than(self, age_ms: int, now_ms: int) -> int:
        """Snapshots, then the files that none has any more."""
        limit = datetime.fromtimestamp((now_ms - age_ms) / 1000, UTC).replace(tzinfo=None)
        self._table.maintenance.expire_snapshots().older_than(limit).commit()
        self.load()
        used = set(_used_files(self._table))
        folder = self.location.absolute() / self.layout.folder
        unused = [each for each in folder.rglob("part-*.parquet") if str(each) not in used]
        old = [each for each in unused if now_ms - each.stat().st_mtime * 1000 >= age_ms]
        for each in old:
            each.unlink()
        return len(old)

    def close(self) -> None:
        self._catalog.close()

    def _read_part(self, file: DataFile) -> Part:
        bounds = _Bounds(self._table, file)
        names = [each.column for each in divisions_of(self._spec)]
        values = tuple(
            (name, _division_text(self._table, name, file.partition[place]))
            for place, name in enumerate(names)
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
    """The least and the greatest value of a column in a file, as numbers."""

    def __init__(self, table: Table, file: DataFile) -> None:
        self._schema = table.schema()
        self._file = file

    def of(self, column: str) -> tuple[int | None, int | None]:
        field = self._schema.find_field(column)
        assert isinstance(field.field_type, PrimitiveType)
        sides = (self._file.lower_bounds, self._file.upper_bounds)
        found = [(side or {}).get(field.field_id) for side in sides]
        least, most = (None if each is None else _number(field.field_type, each) for each in found)
        return least, most


def _number(kind: PrimitiveType, written: bytes) -> int:
    number: Any = from_bytes(kind, written)
    return int(number)


def _division_text(table: Table, name: str, value: Any) -> str | None:
    """Iceberg counts days since 1970."""
    kind = schema_to_pyarrow(table.schema(), include_field_ids=False).field(name).type
    return as_text(
        pa.scalar(value, pa.int32()).cast(kind).as_py() if _is_day(kind, value) else value
    )


def _is_day(kind: pa.DataType, value: Any) -> bool:
    return bool(pa.types.is_date(kind)) and isinstance(value, int)


def _names(transaction: Transaction) -> str:
    """Files carry no numbers of Iceberg's fields: they are found by their names."""
    return transaction.table_metadata.schema().name_mapping.model_dump_json()


def _path(file: DataFile) -> str:
    path: str = file.file_path
    return unquote(urlsplit(path).path) if "://" in path else path


def _used_files(table: Table) -> Iterator[str]:
    """Of every snapshot that is left."""
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield _path(entry.data_file)
