"""A user's Python function that changes records on their way from topic to topic.

`module:function` or `path/to/file.py:function`. It gets a `ReplayRecord` and returns one, several,
or None to leave it out. The module travels to the executors with the job: it need not be installed.
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
    topic: str  # where it comes from, as all that follows
    partition: int  # where it goes to as well, if partitions are kept
    offset: int
    timestamp_ms: int


RecordFunction = Callable[[ReplayRecord], ReplayRecord | Iterable[ReplayRecord] | None]
OUTPUT_SCHEMA = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, "
    "topic string, offset bigint, timestamp timestamp"
)
_OUTPUT = pa.schema(
    [
        pa.field(name, COLUMN_TYPES[name])
        for name in ("key", "value", "headers", "partition", "topic", "offset", "timestamp")
    ]
)


class BadReplayFunction(JobFailed):
    """The function raised, or returned what is no record."""


def load_function(text: str) -> RecordFunction:
    """Found beside the user, that is in the current folder, or where Python looks."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise JobRefused(f"--function {text!r}: write MODULE:FUNCTION or FILE.py:FUNCTION")
    module = _load_file(text, place) if place.endswith(".py") else _load_module(text, place)
    function = getattr(module, name, None)
    if not callable(function):
        raise JobRefused(f"--function {text!r}: {place} has no function {name!r}")
    _send_along(module)
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
        raise JobRefused(f"--function {text!r}: cannot load it: {_said(error)}") from error
    return module


def _load_module(text: str, name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise JobRefused(f"--function {text!r}: cannot import {name}: {_said(error)}") from error
    finally:
        sys.path.remove(os.getcwd())


def _send_along(module: ModuleType) -> None:
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    register(module)


# On executors.


def change_batches(
    change: RecordFunction, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        changed = [each for row in _records(batch) for each in _apply(change, row)]
        if changed:
            yield pa.RecordBatch.from_pylist([_row(each) for each in changed], schema=_OUTPUT)


def _records(batch: pa.RecordBatch) -> Iterator[ReplayRecord]:
    times = batch.column("timestamp").cast(_MICROSECONDS).to_pylist()
    for row, time_us in zip(batch.to_pylist(), times, strict=True):
        yield ReplayRecord(
            key=row["key"],
            value=row["value"],
            headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()),
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
        raise BadReplayFunction(f"the function failed for {where}: {_said(error)}") from error
    for each in changed:
        if not isinstance(each, ReplayRecord):
            raise BadReplayFunction(
                f"the function returned {type(each).__name__} for {where}: return the record, "
                "changed with record._replace(...), a list of such, or None to leave it out"
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


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
