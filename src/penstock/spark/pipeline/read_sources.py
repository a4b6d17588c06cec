"""Reads the sources of a pipeline's file: a topic, files or a table, each with its own entries."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.spark.pipeline.document import Section
from penstock.spark.pipeline.read_relations import read_refinement
from penstock.spark.pipeline.read_values import (
    ParseContext,
    PlainEncoding,
    read_columns,
    read_options,
    read_value_format,
)
from penstock.spark.pipeline.spec import (
    BadValuePolicy,
    Encoding,
    FileSource,
    Source,
    TableSource,
    TopicSource,
)

_TOPIC_KINDS = ("topic", "topics", "topic_pattern")
_KINDS = (*_TOPIC_KINDS, "path", "table")
_STARTS = ("earliest", "latest", "group")
DEFAULT_START = "earliest"


def read_source(name: str, section: Section, context: ParseContext) -> Source | None:
    """None if the source is wrong, which is reported."""
    kinds = [kind for kind in _KINDS if kind in section]
    if len(kinds) != 1:
        section.wrong(
            kinds[1] if kinds else "",
            f"needs exactly one of {', '.join(_KINDS)}" + (f", not {kinds}" if kinds else ""),
        )
        section.give_up()
        return None
    if kinds == ["path"]:
        return _read_files(name, section, context)
    if kinds == ["table"]:
        return _read_table(name, section, context)
    return _read_topic(name, section, context, kinds[0])


def _read_topic(
    name: str, section: Section, context: ParseContext, kind: str
) -> TopicSource | None:
    named = section.find_texts(kind)
    dead_letter = section.find_value("dead_letter")
    group = section.find_value("group")
    source = TopicSource(
        name=name,
        line=section.line,
        subscription=_subscription(kind, named or []),
        topics=() if kind == "topic_pattern" else tuple(named or []),
        value=read_value_format(section, context, default=Encoding.TEXT, needs_columns=True),
        key=Encoding(section.find_choice("key", PlainEncoding) or PlainEncoding.TEXT),
        start=_read_start(section, group),
        group=group,
        bad_values=_read_bad_values(section, dead_letter),
        dead_letter=dead_letter,
        has_headers=section.find_flag("headers", default=False),
        is_stream=section.find_flag("stream", default=True),
        refinement=read_refinement(section, context),
        options=read_options(section),
    )
    if kind == "topic_pattern" and named is not None and len(named) > 1:
        section.wrong(kind, "one pattern is expected: join several with |")
    return source if named else None


def _subscription(kind: str, named: list[str]) -> tuple[str, str]:
    if kind == "topic_pattern":
        return "subscribePattern", named[0] if named else ""
    return "subscribe", ",".join(named)


def _read_bad_values(section: Section, dead_letter: str | None) -> BadValuePolicy:
    policy = section.find_choice("bad_values", BadValuePolicy)
    if dead_letter is not None:
        if policy not in (None, BadValuePolicy.DEAD_LETTER):
            section.wrong("bad_values", f"{policy} contradicts the dead_letter topic; drop one")
        return BadValuePolicy.DEAD_LETTER
    if policy is BadValuePolicy.DEAD_LETTER:
        section.wrong("bad_values", "name the topic instead: `dead_letter: TOPIC`")
    return policy or BadValuePolicy.FAIL


def _read_start(section: Section, group: str | None) -> Mapping[str, str]:
    """The connector's options for where a new query starts."""
    if "start" not in section or section.is_text("start"):
        return _start_at(section, section.find_value("start") or DEFAULT_START, group)
    offsets = section.find_section("start")
    return {} if offsets is None else _start_at_offsets(offsets)


def _start_at(section: Section, start: str, group: str | None) -> Mapping[str, str]:
    if start == "group" and group is None:
        section.wrong("start", "to start at a group's offsets, name the group: `group: NAME`")
        return {}
    if start in _STARTS:
        return {"startingOffsets": start}
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        section.wrong(
            "start",
            f"'start' is {start!r}, but must be {', '.join(_STARTS)}, a time as in "
            "2026-01-31T13:45:00Z, or offsets: {orders: {0: 23}}",
        )
        return {}
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {"startingTimestamp": str(round(moment.timestamp() * 1000))}


def _start_at_offsets(offsets: Section) -> Mapping[str, str]:
    topics: dict[str, dict[str, int]] = {}
    for topic, partitions in offsets.plain().items():
        if not _are_offsets(partitions):
            offsets.wrong(topic, "offsets are written as TOPIC: {PARTITION: OFFSET}")
            return {}
        topics[topic] = {str(partition): offset for partition, offset in partitions.items()}
    return {"startingOffsets": json.dumps(topics)}


def _are_offsets(partitions: Any) -> bool:
    return isinstance(partitions, Mapping) and all(
        str(partition).isdigit() and type(offset) is int and offset >= -2
        for partition, offset in partitions.items()
    )


def _read_files(name: str, section: Section, context: ParseContext) -> FileSource | None:
    path = section.find_value("path")
    format_name = section.find_value("format")
    if "format" not in section:
        section.wrong("format", "files need a `format:`: parquet, json, csv, text, orc, ...")
    source = FileSource(
        name=name,
        line=section.line,
        path=path or "",
        format=format_name or "",
        columns=read_columns(section, "schema"),
        is_stream=section.find_flag("stream", default=False),
        refinement=read_refinement(section, context),
        options=read_options(section),
    )
    if source.is_stream and "schema" not in section:
        section.wrong("stream", "a stream of files needs a `schema:`: there may be no files yet")
    return source if path and format_name else None


def _read_table(name: str, section: Section, context: ParseContext) -> TableSource | None:
    table = section.find_value("table")
    source = TableSource(
        name=name,
        line=section.line,
        table=table or "",
        is_stream=section.find_flag("stream", default=False),
        refinement=read_refinement(section, context),
        options=read_options(section),
    )
    return source if table else None
