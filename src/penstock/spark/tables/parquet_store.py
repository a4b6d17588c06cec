"""A table of plain Parquet files in folders, for readers without a table format.

`_penstock/` has one small file per commit, with all files of the table and its held offsets. A
commit creates the next of these files, which only one writer can do. Data files are written aside
and moved to their final path after the commit; the next commit completes moves that a crash has
interrupted. Invariant: every file at its final path is in the table, so that a reader of the plain
folder sees no row twice.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.tables.errors import CommitConflict, TableError
from penstock.spark.tables.part_writer import Layout, sync_folder
from penstock.spark.tables.parts import (
    HeldRange,
    Part,
    TableChange,
    TableState,
    read_held,
    write_held,
)
from penstock.spark.tables.spec import TableSpec, read_spec, write_spec

_LOG, _ASIDE = "_penstock", "_penstock/aside/"
_KEPT_COMMITS = 10


class _Commit(NamedTuple):
    """The whole state of the table after a commit."""

    version: int
    spec: str
    schema: str  # Arrow IPC, in hexadecimal
    held: Mapping[int, HeldRange]
    parts: tuple[Part, ...]
    removed: tuple[str, ...]  # paths that this commit removed


class ParquetStore:
    layout = Layout(folder=_ASIDE, stores_partition_columns=False, names_folders=True)

    def __init__(self, location: Path, commit: _Commit) -> None:
        self.location = location
        self._commit = commit

    @classmethod
    def open(cls, location: Path) -> "ParquetStore":
        return cls(location, _read_last(location))

    @classmethod
    def create(cls, location: Path, spec: TableSpec, schema: pa.Schema) -> "ParquetStore":
        (location / _ASIDE).mkdir(parents=True)
        first = _Commit(0, write_spec(spec), _write_schema(schema), {}, (), ())
        _write(location, first)
        return cls(location, first)

    @property
    def spec(self) -> TableSpec:
        return read_spec(self._commit.spec)

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self._commit.schema)))

    @property
    def state(self) -> TableState:
        return TableState(self._commit.version, self._commit.held)

    def load(self) -> None:
        self._commit = _read_last(self.location)

    def parts(self) -> list[Part]:
        return list(self._commit.parts)

    def path_of(self, part: Part) -> str:
        """The final path, or the path aside if the file is not moved yet."""
        path = self.location / part.path
        return str(path if path.exists() else self.location / _ASIDE / part.path)

    def commit(self, change: TableChange) -> None:
        self._finish()
        gone = {part.path for part in change.removed}
        kept = [part for part in self._commit.parts if part.path not in gone]
        added = [part._replace(path=part.path.removeprefix(_ASIDE)) for part in change.added]
        self._append(
            self._commit._replace(
                version=self._commit.version + 1,
                held=dict(change.held),
                parts=(*kept, *added),
                removed=tuple(sorted(gone)),
            )
        )

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        schema = self.schema
        for field in fields:
            index = schema.get_field_index(field.name)
            schema = schema.append(field) if index < 0 else schema.set(index, field)
        self._finish()
        self._append(
            self._commit._replace(
                version=self._commit.version + 1, schema=_write_schema(schema), removed=()
            )
        )

    def _append(self, commit: _Commit) -> None:
        _write(self.location, commit)
        self._commit = commit
        self._finish()
        _forget_commits(self.location, commit.version)

    def _finish(self) -> None:
        """Deletes and moves files as the last commit says. Idempotent."""
        for path in self._commit.removed:
            (self.location / path).unlink(missing_ok=True)
        aside, committed = self.location / _ASIDE, {part.path for part in self._commit.parts}
        for file in aside.rglob("part-*.parquet"):
            path = str(file.relative_to(aside))
            if path in committed:
                target = self.location / path
                target.parent.mkdir(parents=True, exist_ok=True)
                file.rename(target)

    def vacuum(self, age_ms: int, now_ms: int) -> int:
        """Deletes old files that were written aside and never committed."""
        self._finish()
        left = (self.location / _ASIDE).rglob("part-*.parquet")
        old = [path for path in left if now_ms - path.stat().st_mtime * 1000 >= age_ms]
        for path in old:
            path.unlink()
        return len(old)

    def close(self) -> None:
        """Does nothing: no resources are held."""


def _read_last(location: Path) -> _Commit:
    names = sorted((location / _LOG).glob("*.json"))
    if not names:
        raise TableError(f"the table in {location} has no commits in {_LOG}: it is damaged")
    fields: dict[str, Any] = json.loads(names[-1].read_text())
    parts = tuple(_read_part(written) for written in fields["parts"])
    return _Commit(**{**fields, "held": read_held(fields["held"]), "parts": parts})


def _read_part(written: list[Any]) -> Part:
    part = Part(*written)
    return part._replace(values=tuple((name, value) for name, value in part.values))


def _write(location: Path, commit: _Commit) -> None:
    """Writes the commit atomically; raises CommitConflict if this version exists."""
    log = location / _LOG
    text = json.dumps({**commit._asdict(), "held": write_held(commit.held)})
    aside = log / f".{uuid.uuid4().hex}"
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(aside, log / f"{commit.version:020}.json")
    except FileExistsError:
        raise CommitConflict(f"{location} was changed concurrently") from None
    finally:
        aside.unlink()
    sync_folder(log)
    if _last_version(location) != commit.version:  # so old that its name was free again
        raise CommitConflict(f"{location} was changed concurrently, many times")


def _last_version(location: Path) -> int:
    return max(int(path.stem) for path in (location / _LOG).glob("*.json"))


def _forget_commits(location: Path, version: int) -> None:
    for name in (location / _LOG).glob("*.json"):
        if int(name.stem) <= version - _KEPT_COMMITS:
            name.unlink(missing_ok=True)


def _write_schema(schema: pa.Schema) -> str:
    written: bytes = schema.serialize().to_pybytes()
    return written.hex()
