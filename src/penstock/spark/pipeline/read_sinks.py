"""Reads the sinks of a pipeline's file: a topic, files, a table or a format without a target."""

from penstock.spark.pipeline.document import Section
from penstock.spark.pipeline.read_values import (
    ParseContext,
    find_sql,
    read_options,
    read_value_format,
)
from penstock.spark.pipeline.spec import (
    Encoding,
    FileTarget,
    FormatTarget,
    OutputMode,
    Sink,
    Sql,
    TableTarget,
    Target,
    TopicTarget,
)

_TARGETS = ("topic", "path", "table")
DEFAULT_FORMAT = "parquet"


def read_sink(name: str, section: Section, context: ParseContext) -> Sink | None:
    """None if the sink is wrong, which is reported."""
    reads = _read_input(section)
    target = _read_target(section, context)
    sink = Sink(
        name=name,
        line=section.line,
        reads=reads or "",
        target=target or FormatTarget(format=""),
        mode=section.find_choice("mode", OutputMode),
        trigger=context.find_span(section, "trigger") or context.trigger,
        checkpoint=section.find_value("checkpoint") or f"{context.folder}/{name}",
        options=read_options(section),
    )
    return sink if reads and target else None


def _read_input(section: Section) -> str | Sql | None:
    name, query = section.find_value("from"), find_sql(section, "query")
    if ("from" in section) == ("query" in section):
        section.wrong("query", "needs either `from:` a source or view, or a `query:` in SQL")
    return name or query


def _read_target(section: Section, context: ParseContext) -> Target | None:
    targets = [name for name in _TARGETS if name in section]
    if len(targets) > 1 or not (targets or "format" in section):
        section.wrong(
            targets[-1] if targets else "",
            "needs exactly one of topic, path and table, or a format without a target (console)",
        )
        section.give_up()
        return None
    if targets == ["topic"]:
        return _read_topic(section, context)
    if targets == ["path"]:
        return _read_files(section)
    if targets == ["table"]:
        return _read_table(section)
    format_name = section.find_value("format")
    return FormatTarget(format=format_name) if format_name else None


def _read_topic(section: Section, context: ParseContext) -> TopicTarget | None:
    topic = section.find_value("topic")
    target = TopicTarget(
        topic=topic or "",
        value=read_value_format(section, context, default=Encoding.JSON, needs_columns=False),
        key=find_sql(section, "key"),
        headers=find_sql(section, "headers"),
        partition=find_sql(section, "partition"),
    )
    return target if topic else None


def _read_files(section: Section) -> FileTarget | None:
    path = section.find_value("path")
    target = FileTarget(
        path=path or "",
        format=section.find_value("format") or DEFAULT_FORMAT,
        partition_by=tuple(section.find_texts("partition_by") or ()),
    )
    return target if path else None


def _read_table(section: Section) -> TableTarget | None:
    table = section.find_value("table")
    target = TableTarget(
        table=table or "",
        format=section.find_value("format"),
        partition_by=tuple(section.find_texts("partition_by") or ()),
    )
    return target if table else None
