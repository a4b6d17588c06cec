"""A table's specification: its topic, its format, and how values become columns. Stored in the
table.

Pure. Invariant: `read_spec(write_spec(spec)) == spec`, for this and earlier versions.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.spark.tables.errors import BadTableOption, TableError
from penstock.spark.tables.partitioning import parse_partitioning

PROPERTY = "penstock.table"  # a property of the table, in its format's own terms
REGISTRY_BYTES = 5  # before each value: a zero byte and the id of a registry's schema
_VERSION = 1


class TableFormat(enum.StrEnum):
    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


class ValueKind(enum.StrEnum):
    RAW = "raw"  # unparsed: only the column `_value`
    TEXT = "text"  # one column, `value`
    JSON = "json"
    AVRO = "avro"


class DeadLetterPolicy(enum.StrEnum):
    """The policy for a record whose value does not fit."""

    DEAD_LETTER = "dead-letter"  # write it to the dead-letter table
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    topic: str
    format: TableFormat
    topic_id: str | None = None  # when the table was created; None: the cluster has no topic ids
    value: ValueKind = ValueKind.RAW
    columns: str | None = None  # Spark DDL; None: from the Avro schema, or inferred
    avro: Any | None = None
    skip_bytes: int = 0  # before each Avro value: the prefix of a schema registry
    evolves: bool = False  # new fields become columns
    partition_by: tuple[str, ...] = ()  # as written: `country`, `day(_timestamp)`
    upserts: bool = False  # one row per key, the latest
    keeps_value: bool = True
    bad_values: DeadLetterPolicy = DeadLetterPolicy.DEAD_LETTER

    @property
    def infers(self) -> bool:
        """Whether columns are inferred from the values."""
        return self.value is ValueKind.JSON and self.columns is None

    @property
    def can_be_bad(self) -> bool:
        """Whether a record can fail to become a row."""
        return self.value is not ValueKind.RAW or self.upserts


def check_spec(spec: TableSpec) -> TableSpec:
    """Raises BadTableOption for contradictions, before anything is created."""
    if spec.value is not ValueKind.JSON and spec.columns is not None:
        raise BadTableOption(f"a schema of columns is for JSON values, not for {spec.value}")
    if (spec.value is ValueKind.AVRO) != (spec.avro is not None):
        raise BadTableOption("Avro values and an Avro schema need each other")
    if spec.value is ValueKind.RAW and not spec.keeps_value:
        raise BadTableOption("a table of raw values needs the values: do not drop them")
    if spec.evolves and spec.value is not ValueKind.JSON:
        raise BadTableOption("only columns of JSON values can evolve")
    if spec.upserts and spec.partition_by:
        raise BadTableOption("an upsert table is partitioned by the topic's own partitions")
    if spec.upserts and not spec.keeps_value:
        raise BadTableOption("an upsert table needs the values: a null value deletes the row")
    parse_partitioning(spec.partition_by)
    return spec


def parse_spec(options: Mapping[str, Any]) -> TableSpec:
    """The spec of a user's options, by the field names of TableSpec, with defaults."""
    words = {name: _word(name, options[name]) for name in _WORDS if name in options}
    has_columns = "columns" in options or words.get("value") is not ValueKind.JSON
    return check_spec(TableSpec(**{"evolves": not has_columns, **options, **words}))


def _word(name: str, text: str) -> enum.StrEnum:
    kind = _WORDS[name]
    try:
        return kind(text.lower())
    except ValueError:
        raise BadTableOption(f"{name} {text!r}: write one of {', '.join(kind)}") from None


def write_spec(spec: TableSpec) -> str:
    fields = {name: getattr(spec, name) for name in _FIELDS}
    return json.dumps({"version": _VERSION, **fields}, sort_keys=True)


def read_spec(text: str) -> TableSpec:
    try:
        written: Mapping[str, Any] = json.loads(text)
        version = int(written["version"])
    except (ValueError, KeyError, TypeError):
        raise TableError(f"the table's property {PROPERTY} is not valid: {text!r}") from None
    if version > _VERSION:
        raise TableError(
            f"the table was created by a newer Penstock (version {version}): update Penstock"
        )
    fields = {name: written[name] for name in _FIELDS if name in written}
    return TableSpec(
        **{
            **fields,
            **{name: kind(written[name]) for name, kind in _WORDS.items()},
            "partition_by": tuple(written["partition_by"]),
        }
    )


_FIELDS = (
    *("topic", "topic_id", "format", "value", "columns", "avro", "skip_bytes"),
    *("evolves", "partition_by", "upserts", "keeps_value", "bad_values"),
)
_WORDS: Mapping[str, type[enum.StrEnum]] = {
    "format": TableFormat,
    "value": ValueKind,
    "bad_values": DeadLetterPolicy,
}
# Later runs may change these, because they concern only new records.
MAY_CHANGE = ("bad_values", "evolves")


def differences(kept: TableSpec, requested: TableSpec) -> list[str]:
    """Messages about requested fields that an existing table cannot change to."""
    return [
        f"{name} is {_shown(kept, name)}, not {_shown(requested, name)}"
        for name in _FIELDS
        if name not in MAY_CHANGE and getattr(kept, name) != getattr(requested, name)
    ]


def _shown(spec: TableSpec, name: str) -> str:
    return json.dumps(getattr(spec, name))


def changes_of(requested: TableSpec | None) -> dict[str, Any]:
    return {} if requested is None else {name: getattr(requested, name) for name in MAY_CHANGE}


def parse_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that may change for an existing table."""
    changes = {name: options[name] for name in MAY_CHANGE if name in options}
    return {
        name: _word(name, value) if name in _WORDS else value for name, value in changes.items()
    }
