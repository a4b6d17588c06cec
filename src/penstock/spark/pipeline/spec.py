"""A pipeline as values: its file's content, checked and with defaults. No YAML, no Spark.

Line numbers are kept for errors that only Spark can find.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

# The record's metadata, which a topic source adds to the columns of the value.
RECORD_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
HEADERS_COLUMN = "_headers"
CHANGE_COLUMNS = ("_op", "_deleted", "_changed_at")  # what Debezium's envelope adds to its row
DEFAULT_CHECKPOINTS = "penstock-checkpoints"


class Encoding(StrEnum):
    """How the bytes of a key or value are decoded."""

    JSON = "json"
    DEBEZIUM = "debezium"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    TEXT = "text"
    BINARY = "binary"


class BadValuePolicy(StrEnum):
    """The policy of a pipeline for a record that does not parse."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


class OutputMode(StrEnum):
    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"
    OVERWRITE = "overwrite"  # only without a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    text: str
    line: int  # of its first line


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    value: str
    line: int


Options = Mapping[str, Option]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRef:
    """Where the schema of values is registered."""

    url: str
    subject: str | None  # None: that of the topic's values, "<topic>-value"
    auth: Option | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    encoding: Encoding
    line: int
    columns: str | None = None  # JSON: Spark's DDL, "user STRING, at TIMESTAMP"
    avro: Any = None  # Avro schema, as parsed JSON
    skip_bytes: int = 0  # before an Avro value: 5 with a schema registry's prefix
    options: Options  # for Spark's JSON reader or writer
    descriptors: bytes | None = None  # Protobuf: a descriptor set
    message: str | None = None  # Protobuf: the message's full name
    json_schema: str | None = None  # of JSON with a JSON Schema; columns has its types
    registry: RegistryRef | None = None
    schema_id: int | None = None  # to write with; known once the registry has been asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str
    delay: str  # Spark's interval string: "10 minutes"
    line: int
    expression: Sql | None = None  # makes the column; None: the rows have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """Of rows with equal values in these columns, the first within the watermark is kept."""

    by: tuple[str, ...]
    line: int


class ViolationPolicy(StrEnum):
    """What becomes of a row that does not meet an expectation."""

    FAIL = "fail"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    name: str
    condition: Sql  # null is a violation, too
    otherwise: ViolationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """What is done with the rows of a source or view, in this order: event time, expectations,
    watermark, duplicates."""

    watermark: Watermark | None = None
    expectations: tuple[Expectation, ...] = ()
    dedup: Dedup | None = None

    def sends_dead_letters(self) -> bool:
        policies = [expectation.otherwise for expectation in self.expectations]
        return ViolationPolicy.DEAD_LETTER in policies


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    path: str  # "package.module:function"
    line: int
    returns: str | None = None  # Spark's DDL; None: the function's annotation says it
    function: Callable[..., Any] | None = None  # given directly, in a Python file


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFunction:
    """A Python function that SQL can call by this name."""

    name: str
    line: int
    python: PythonFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    name: str
    line: int
    subscription: tuple[str, str]  # the connector's option and its value
    topics: tuple[str, ...]  # empty with a pattern
    value: ValueFormat
    key: Encoding  # text or binary
    start: Mapping[str, str]  # the connector's options
    group: str | None
    bad_values: BadValuePolicy
    dead_letter: str | None
    has_headers: bool
    is_stream: bool
    refinement: Refinement
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    name: str
    line: int
    path: str
    format: str
    columns: str | None
    is_stream: bool
    refinement: Refinement
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    name: str
    line: int
    table: str
    is_stream: bool
    refinement: Refinement
    options: Options


Source = TopicSource | FileSource | TableSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    name: str
    line: int
    reads: str | Sql  # the name of a source or view, or a query
    python: PythonFunction | None  # from a DataFrame to a DataFrame
    refinement: Refinement
    dead_letter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    topic: str
    value: ValueFormat
    key: Sql | None  # an expression, like the two below
    headers: Sql | None
    partition: Sql | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    path: str
    format: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    table: str
    format: str | None  # None: the catalog's default
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTarget:
    """A Spark format without a path or table: console, noop, or a data source with options."""

    format: str


class LakeFormat(StrEnum):
    """Table formats that are written without Spark's jars."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class MergeKind(StrEnum):
    UPSERT = "upsert"  # the latest row of each key
    SCD2 = "scd2"  # all versions of it: slowly changing dimension, type 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    kind: MergeKind
    keys: tuple[str, ...]
    line: int
    order: str | None  # a column; of two rows of a key, that with the higher value is the later
    delete: Sql | None  # an expression: whether the row deletes its key


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTarget:
    path: str
    format: LakeFormat
    partition_by: tuple[str, ...]
    merge: Merge | None  # None: rows are appended


SingleTarget = TopicTarget | FileTarget | TableTarget | FormatTarget | LakeTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One of several targets of a sink: its share of the rows."""

    name: str
    line: int
    where: Sql | None
    select: tuple[str, ...]  # SQL expressions; empty: all columns
    target: SingleTarget
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTargets:
    """Several targets that are written by one query, which reads once."""

    branches: tuple[Branch, ...]


Target = SingleTarget | BranchTargets


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    name: str
    line: int
    reads: str | Sql  # the name of a source or view, or a query
    target: Target
    mode: OutputMode | None  # None: append
    trigger: str | None
    checkpoint: str
    options: Options


def branch_sinks(sink: Sink) -> list[Sink]:
    """A sink for each of several targets, with what they have in common; none if there is one."""
    if not isinstance(sink.target, BranchTargets):
        return []
    return [
        replace(
            sink,
            name=f"{sink.name}, target {branch.name}",
            line=branch.line,
            target=branch.target,
            options={**sink.options, **branch.options},
        )
        for branch in sink.target.branches
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    file: str
    folder: str  # in which the modules of its Python functions are looked for
    name: str
    bootstrap: str | None
    checkpoints: str
    low_latency: bool
    settings: Mapping[str, str]  # Spark's
    sources: tuple[Source, ...]
    functions: tuple[SqlFunction, ...]
    views: tuple[PipelineView, ...]
    sinks: tuple[Sink, ...]

    def topic_sources(self) -> list[TopicSource]:
        return [source for source in self.sources if isinstance(source, TopicSource)]

    def dead_letter_sink(self, relation: TopicSource | PipelineView) -> Sink | None:
        """The sink for the rows that are kept aside; None if the relation has no dead_letter."""
        if relation.dead_letter is None:
            return None
        name = f"{relation.name}.dead-letter"
        whole = ValueFormat(encoding=Encoding.BINARY, line=relation.line, options={})
        target = TopicTarget(
            topic=relation.dead_letter, value=whole, key=None, headers=None, partition=None
        )
        return Sink(
            name=name,
            line=relation.line,
            reads=relation.name,
            target=target,
            mode=None,
            trigger=None,
            checkpoint=f"{self.checkpoints}/{self.name}/{name}",
            options={},
        )
