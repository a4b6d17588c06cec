"""A pipeline as values: its file's content, checked and with defaults. No YAML, no Spark.

Line numbers are kept for errors that only Spark can find.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# The record's metadata, which a topic source adds to the columns of the value.
RECORD_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
HEADERS_COLUMN = "_headers"
DEFAULT_CHECKPOINTS = "penstock-checkpoints"


class Encoding(StrEnum):
    """How the bytes of a key or value are decoded."""

    JSON = "json"
    AVRO = "avro"
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
class ValueFormat:
    encoding: Encoding
    line: int
    columns: str | None = None  # JSON: Spark's DDL, "user STRING, at TIMESTAMP"
    avro: Any = None  # Avro schema, as parsed JSON
    skip_bytes: int = 0  # before an Avro value: 5 with a schema registry's prefix
    options: Options  # for Spark's JSON reader or writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str
    delay: str  # Spark's interval string: "10 minutes"
    line: int


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
    watermark: Watermark | None
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    name: str
    line: int
    path: str
    format: str
    columns: str | None
    is_stream: bool
    watermark: Watermark | None
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    name: str
    line: int
    table: str
    is_stream: bool
    watermark: Watermark | None
    options: Options


Source = TopicSource | FileSource | TableSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    name: str
    line: int
    sql: Sql


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


Target = TopicTarget | FileTarget | TableTarget | FormatTarget


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    file: str
    name: str
    bootstrap: str | None
    checkpoints: str
    low_latency: bool
    settings: Mapping[str, str]  # Spark's
    sources: tuple[Source, ...]
    views: tuple[PipelineView, ...]
    sinks: tuple[Sink, ...]

    def topic_sources(self) -> list[TopicSource]:
        return [source for source in self.sources if isinstance(source, TopicSource)]

    def dead_letter_sink(self, source: TopicSource) -> Sink | None:
        """The sink for the source's records that do not parse; None if it has no dead_letter."""
        if source.dead_letter is None:
            return None
        name = f"{source.name}.dead-letter"
        whole = ValueFormat(encoding=Encoding.BINARY, line=source.line, options={})
        target = TopicTarget(
            topic=source.dead_letter, value=whole, key=None, headers=None, partition=None
        )
        return Sink(
            name=name,
            line=source.line,
            reads=source.name,
            target=target,
            mode=None,
            trigger=None,
            checkpoint=f"{self.checkpoints}/{self.name}/{name}",
            options={},
        )
