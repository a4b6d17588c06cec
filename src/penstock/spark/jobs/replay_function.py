"""A user's Python function that transforms records during a replay.

Named as `module:function` or `path/to/file.py:function`. It takes a `ReplayRecord` and returns one,
several, or None to drop it. The module is pickled with the job, so that executors need not have it
installed.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.codec.row_columns import COLUMN_TYPES
from penstock.spark.jobs.failures import JobFailed, JobRefused

Headers = tuple[tuple[str, bytes | None], ...]
_MICROSECONDS = pa.int64()


class ReplayRecord(NamedTuple):
    """`record._replace(value=...)` makes a changed one."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str  # of the source, as are all fields below
    partition: int  # also of the target with --keep-partitions
    offset: int
    timestamp_ms: int


RecordFunction = Callable[[ReplayRecord], ReplayRecord | Iterable[ReplayRecord] | None]
OUTPUT_SCHEMA = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, "
    "topic string, offset bigint, timestamp timestamp"
)
OUTPUT_NAMES = ("key", "value", "headers", "partition", "topic", "offset", "timestamp")
_OUTPUT = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in OUTPUT_NAMES])


class BadReplayFunction(JobFailed):
    """The function raised, or returned something that is not a record."""


def load_function(text: str) -> RecordFunction:
    """Imports the function from the current folder or from Python's path."""
    source, colon, name = text.rpartition(":")
    if not colon or not source or not name:
        raise JobRefused(f"--function {text!r}: write MODULE:FUNCTION or FILE.py:FUNCTION")
    module = _load_file(text, source) if source.endswith(".py") else _load_module(text, source)
    function = getattr(module, name, None)
    if not callable(function):
        raise JobRefused(f"--function {text!r}: {source} has no function {name!r}")
    _pickle_by_value(module)
    return function  # type: ignore[no-any-return] # it is the user's


def _load_file(text: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise JobRefused(f"--function {text!r}: cannot load it: {_describe(error)}") from error
    return module


def _load_module(text: str, name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise JobRefused(
            f"--function {text!r}: cannot import {name}: {_describe(error)}"
        ) from error
    finally:
        sys.path.remove(os.getcwd())


def _pickle_by_value(module: ModuleType) -> None:
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    register(module)


# On executors.


def change_batches(
    change: RecordFunction, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        changed = [
            changed_record for row in _records(batch) for changed_record in _apply(change, row)
        ]
        if changed:
            yield pa.RecordBatch.from_pylist([_row(record) for record in changed], schema=_OUTPUT)


def _records(batch: pa.RecordBatch) -> Iterator[ReplayRecord]:
    times = batch.column("timestamp").cast(_MICROSECONDS).to_pylist()
    for row, time_us in zip(batch.to_pylist(), times, strict=True):
        yield ReplayRecord(
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            timestamp_ms=time_us // 1000,
        )


def _apply(change: RecordFunction, record: ReplayRecord) -> Iterable[ReplayRecord]:
    where = f"{record.topic}-{record.partition} offset {record.offset}"
    try:
        made = change(record)
        changed = () if made is None else (made,) if isinstance(made, ReplayRecord) else tuple(made)
    except Exception as error:
        raise BadReplayFunction(f"the function failed for {where}: {_describe(error)}") from error
    for result in changed:
        if not isinstance(result, ReplayRecord):
            raise BadReplayFunction(
                f"the function returned {type(result).__name__} for {where}: return the record, "
                "changed with record._replace(...), a list of records, or None to drop it"
            )
    return changed


def _row(record: ReplayRecord) -> Mapping[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        "partition": record.partition,
        "topic": record.topic,
        "offset": record.offset,
        "timestamp": record.timestamp_ms * 1000,
    }


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
