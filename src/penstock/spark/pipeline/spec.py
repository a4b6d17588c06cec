"""A pipeline as values: what a file says, checked and with defaults filled in. No YAML, no Spark.

Lines are those of the file, for messages about what only Spark can find wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# What a topic's source adds to the columns of the value: where a record lies.
PLACE_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
HEADERS_COLUMN = "_headers"
DEFAULT_CHECKPOINTS = "penstock-checkpoints"


class Encoding(StrEnum):
    """How the bytes of a key or value are to be understood."""

    JSON = "json"
    AVRO = "avro"
    TEXT = "text"
    BINARY = "binary"


class BadValuePolicy(StrEnum):
    """What becomes of a pipeline whose record does not parse."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


class OutputMode(StrEnum):
    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"
    OVERWRITE = "overwrite"  # of what is no stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    text: str
    line: int  # where its first line is


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    value: str
    line: int


Options = Mapping[str, Option]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    encoding: Encoding
    line: int
    columns: str | None = None  # of JSON: Spark's DDL, "user STRING, at TIMESTAMP"
    avro: Any = None  # Avro's schema, as JSON gives it
    skip_bytes: int = 0  # before an Avro value: 5 where a registry's id is
    options: Options  # of Spark's JSON reader or writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str
    delay: str  # as Spark writes it: "10 minutes"
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    name: str
    line: int
    subscription: tuple[str, str]  # the connector's option and its value
    topics: tuple[str, ...]  # those that are named; none with a pattern
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
    key: Sql | None  # an expression, as are the others
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
    """A format of Spark's that needs no place: console, noop, or a data source with options."""

    format: str


Target = TopicTarget | FileTarget | TableTarget | FormatTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    name: str
    line: int
    reads: str | Sql  # the name of a source or view, or a query of its own
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
        return [each for each in self.sources if isinstance(each, TopicSource)]

    def dead_letter_sink(self, source: TopicSource) -> Sink | None:
        """Of the query that carries what does not parse; None: the file asks for none."""
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
