"""A table of plain Parquet files in folders, for readers that know no table format.

`_penstock/` keeps one small file for each commit: all files of the table and what it holds. A
commit is the making of the next one, which only one can do. Files are written aside and moved to
their place after it; who loads the table to change it finishes a move that a crash has cut short.
Invariant: a file in place is in the table, so that a reader of the folder alone sees no row twice.
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
    """All that is known of the table after a commit."""

    version: int
    spec: str
    schema: str  # Arrow's own form, in hexadecimal digits
    held: Mapping[int, HeldRange]
    parts: tuple[Part, ...]
    removed: tuple[str, ...]  # by this commit: paths


class ParquetStore:
    layout = Layout(folder=_ASIDE, stores_divisions=False, names_folders=True)

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
        """Where it is, or still is."""
        place = self.location / part.path
        return str(place if place.exists() else self.location / _ASIDE / part.path)

    def commit(self, change: TableChange) -> None:
        self._finish()
        gone = {each.path for each in change.removed}
        kept = [each for each in self._commit.parts if each.path not in gone]
        added = [each._replace(path=each.path.removeprefix(_ASIDE)) for each in change.added]
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
        for each in fields:
            place = schema.get_field_index(each.name)
            schema = schema.append(each) if place < 0 else schema.set(place, each)
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
        """What the last commit says, done to the files; a second time changes nothing."""
        for path in self._commit.removed:
            (self.location / path).unlink(missing_ok=True)
        aside, known = self.location / _ASIDE, {each.path for each in self._commit.parts}
        for file in aside.rglob("part-*.parquet"):
            path = str(file.relative_to(aside))
            if path in known:
                place = self.location / path
                place.parent.mkdir(parents=True, exist_ok=True)
                file.rename(place)

    def forget_older_than(self, age_ms: int, now_ms: int) -> int:
        """What was written aside and never committed."""
        self._finish()
        left = (self.location / _ASIDE).rglob("part-*.parquet")
        old = [each for each in left if now_ms - each.stat().st_mtime * 1000 >= age_ms]
        for each in old:
            each.unlink()
        return len(old)

    def close(self) -> None:
        """Nothing is open."""


def _read_last(location: Path) -> _Commit:
    names = sorted((location / _LOG).glob("*.json"))
    if not names:
        raise TableError(f"the table in {location} has lost its commits in {_LOG}")
    found: dict[str, Any] = json.loads(names[-1].read_text())
    parts = tuple(_read_part(each) for each in found["parts"])
    return _Commit(**{**found, "held": read_held(found["held"]), "parts": parts})


def _read_part(written: list[Any]) -> Part:
    part = Part(*written)
    return part._replace(values=tuple((name, value) for name, value in part.values))


def _write(location: Path, commit: _Commit) -> None:
    """Whole or not at all, and only if nobody else was first."""
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
        raise CommitConflict(f"{location} was changed by somebody else") from None
    finally:
        aside.unlink()
    sync_folder(log)
    if _last_version(location) != commit.version:  # its name was free since it is that old
        raise CommitConflict(f"{location} was changed many times by somebody else")


def _last_version(location: Path) -> int:
    return max(int(each.stem) for each in (location / _LOG).glob("*.json"))


def _forget_commits(location: Path, version: int) -> None:
    for name in (location / _LOG).glob("*.json"):
        if int(name.stem) <= version - _KEPT_COMMITS:
            name.unlink(missing_ok=True)


def _write_schema(schema: pa.Schema) -> str:
    written: bytes = schema.serialize().to_pybytes()
    return written.hex()
