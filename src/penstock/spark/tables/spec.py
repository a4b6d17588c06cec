"""What a table is to be: its topic, its format, and how values become columns. Kept in the table.

Pure. Invariant: `read_spec(write_spec(spec)) == spec`, of this and of earlier versions.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.spark.tables.errors import BadTableOption, TableError
from penstock.spark.tables.partitioning import parse_partitioning

PROPERTY = "penstock.table"  # of the table, in its format's own properties
REGISTRY_BYTES = 5  # before each value: a zero and the number of a registry's schema
_VERSION = 1


class TableFormat(enum.StrEnum):
    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


class ValueKind(enum.StrEnum):
    RAW = "raw"  # as it came: no columns but `_value`
    TEXT = "text"  # one column, `value`
    JSON = "json"
    AVRO = "avro"


class DeadLetterPolicy(enum.StrEnum):
    """What becomes of a record whose value does not fit."""

    DEAD_LETTER = "dead-letter"  # a row of the table beside this one
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    topic: str
    format: TableFormat
    topic_id: str | None = None  # of the topic when the table began; None: the cluster has no ids
    value: ValueKind = ValueKind.RAW
    columns: str | None = None  # in Spark's DDL; None: of the Avro schema, or inferred
    avro: Any | None = None
    skip_bytes: int = 0  # before each Avro value: the number of a registry's schema
    evolves: bool = False  # fields that are new become columns
    partition_by: tuple[str, ...] = ()  # as people write it: `country`, `day(_timestamp)`
    upserts: bool = False  # one row for each key, its latest
    keeps_value: bool = True
    bad_values: DeadLetterPolicy = DeadLetterPolicy.DEAD_LETTER

    @property
    def infers(self) -> bool:
        """Columns are found in the values."""
        return self.value is ValueKind.JSON and self.columns is None

    @property
    def can_be_bad(self) -> bool:
        """There are records that no row can be made of."""
        return self.value is not ValueKind.RAW or self.upserts


def check_spec(spec: TableSpec) -> TableSpec:
    """What cannot go together is refused before anything is made."""
    if spec.value is not ValueKind.JSON and spec.columns is not None:
        raise BadTableOption(f"a schema of columns is for JSON values, not for {spec.value}")
    if (spec.value is ValueKind.AVRO) != (spec.avro is not None):
        raise BadTableOption("Avro values and an Avro schema need each other")
    if spec.value is ValueKind.RAW and not spec.keeps_value:
        raise BadTableOption("raw values are all that the table would have: keep them")
    if spec.evolves and spec.value is not ValueKind.JSON:
        raise BadTableOption("only columns of JSON values can grow by themselves")
    if spec.upserts and spec.partition_by:
        raise BadTableOption("a table of latest rows is divided by the topic's own partitions")
    if spec.upserts and not spec.keeps_value:
        raise BadTableOption("a table of latest rows needs the values: none means deleted")
    parse_partitioning(spec.partition_by)
    return spec


def parse_spec(given: Mapping[str, Any]) -> TableSpec:
    """Of what a person has said; what is missing is as usual."""
    words = {name: _word(name, given[name]) for name in _WORDS if name in given}
    columns_are_said = "columns" in given or words.get("value") is not ValueKind.JSON
    return check_spec(TableSpec(**{"evolves": not columns_are_said, **given, **words}))


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
        found: Mapping[str, Any] = json.loads(text)
        version = int(found["version"])
    except (ValueError, KeyError, TypeError):
        raise TableError(f"the table's property {PROPERTY} is no specification: {text!r}") from None
    if version > _VERSION:
        raise TableError(f"the table was made by a newer Penstock (version {version}): update this")
    known = {name: found[name] for name in _FIELDS if name in found}
    return TableSpec(
        **{
            **known,
            **{name: kind(found[name]) for name, kind in _WORDS.items()},
            "partition_by": tuple(found["partition_by"]),
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
# What a later run may say otherwise: it is about records to come.
MAY_CHANGE = ("bad_values", "evolves")


def differences(kept: TableSpec, asked: TableSpec) -> list[str]:
    """What is asked for now and the table cannot become any more, in words."""
    return [
        f"{name} is {_shown(kept, name)}, not {_shown(asked, name)}"
        for name in _FIELDS
        if name not in MAY_CHANGE and getattr(kept, name) != getattr(asked, name)
    ]


def _shown(spec: TableSpec, name: str) -> str:
    return json.dumps(getattr(spec, name))


def changes_of(asked: TableSpec | None) -> dict[str, Any]:
    return {} if asked is None else {name: getattr(asked, name) for name in MAY_CHANGE}


def parse_changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a person has said, what holds for a table that is there."""
    found = {name: given[name] for name in MAY_CHANGE if name in given}
    return {name: _word(name, value) if name in _WORDS else value for name, value in found.items()}
