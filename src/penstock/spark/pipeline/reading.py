"""Reads a pipeline's file into a `Pipeline`. Collects every mistake with its line; runs nothing.

Text files that it names (schemas, modules) are read through `read_file`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from penstock.spark.pipeline.checks import check_pipeline
from penstock.spark.pipeline.document import Section, read_document, top_section
from penstock.spark.pipeline.problems import Problems
from penstock.spark.pipeline.python_document import read_python_tree
from penstock.spark.pipeline.read_relations import read_function, read_view
from penstock.spark.pipeline.read_sinks import read_sink
from penstock.spark.pipeline.read_sources import read_source
from penstock.spark.pipeline.read_values import ParseContext
from penstock.spark.pipeline.spec import (
    DEFAULT_CHECKPOINTS,
    Pipeline,
    PipelineView,
    Sink,
    Source,
    SqlFunction,
)
from penstock.spark.pipeline.sql_document import read_sql_tree

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TABLE = re.compile(r"[A-Za-z_]\w*")


def read_pipeline(
    file: str, text: str, read_file: Callable[[str], str], folder: str | None = None
) -> Pipeline:
    """Raises PipelineInvalid with all problems. `read_file` takes file names as they are
    written. The file is YAML, SQL statements (`.sql`), or Python (`.py`), which is run. `folder`
    has the modules of its functions: by default that of the file."""
    problems = Problems(file)
    document, functions = _read_tree(file, text, problems)
    base = str(PurePath(file).parent) if folder is None else folder
    context = ParseContext(problems=problems, read_file=read_file, functions=functions, base=base)
    pipeline = _read(document, context)
    check_pipeline(pipeline, problems)
    problems.check()
    return pipeline


def _read_tree(
    file: str, text: str, problems: Problems
) -> tuple[Section, Mapping[str, Callable[..., Any]]]:
    suffix = PurePath(file).suffix
    if suffix == ".sql":
        return top_section(file, read_sql_tree(file, text), problems), {}
    if suffix == ".py":
        tree = read_python_tree(file, text)
        return top_section(file, tree.root, problems), tree.functions
    return read_document(file, text, problems), {}


def _read(document: Section, context: ParseContext) -> Pipeline:
    file = context.problems.file
    name = document.find_value("pipeline") or PurePath(file).stem
    if not _FOLDER.fullmatch(name):
        document.wrong(
            "pipeline", f"{name!r} is not a valid folder name: use letters, digits, - _ and ."
        )
    checkpoints = document.find_value("checkpoints") or DEFAULT_CHECKPOINTS
    settings = _read_settings(document)
    context = context.within(
        folder=f"{checkpoints.rstrip('/')}/{name}",
        trigger=context.find_span(document, "trigger"),
        has_lake_jars=_has_lake_jars(settings),
    )
    pipeline = Pipeline(
        file=file,
        folder=context.base,
        name=name,
        bootstrap=document.find_value("bootstrap"),
        checkpoints=checkpoints.rstrip("/"),
        low_latency=document.find_flag("low_latency", default=True),
        settings=settings,
        sources=_read_sources(document, context),
        functions=_read_functions(document, context),
        views=_read_views(document, context),
        sinks=_read_sinks(document, context),
    )
    document.done()
    return pipeline


def _read_settings(document: Section) -> Mapping[str, str]:
    section = document.find_section("settings", "settings")
    if section is None:
        return {}
    for name in section.names():
        if not name.startswith("spark."):
            section.wrong(name, f"{name!r} is not a Spark setting: names start with `spark.`")
    return {name: text.value for name, text in section.texts()}


def _has_lake_jars(settings: Mapping[str, str]) -> bool:
    jars = (value for name, value in settings.items() if name.startswith("spark.jars"))
    return any(lake in value for value in jars for lake in ("delta-spark", "iceberg-spark"))


def _read_sources(document: Section, context: ParseContext) -> tuple[Source, ...]:
    sources = []
    for name, section in _named_sections(document, "sources", "source"):
        _check_table_name(document, section, name)
        source = read_source(name, section, context)
        section.done()
        if source is None:
            context.problems.unreadable.add(name.lower())
        else:
            sources.append(source)
    return tuple(sources)


def _read_functions(document: Section, context: ParseContext) -> tuple[SqlFunction, ...]:
    section = document.find_section("functions", "functions")
    if section is None:
        return ()
    for name in section.names():
        _check_table_name(document, section, name, section.line_of(name))
    read = [read_function(name, section, context) for name in section.names()]
    return tuple(function for function in read if function is not None)


def _read_views(document: Section, context: ParseContext) -> tuple[PipelineView, ...]:
    section = document.find_section("views", "views")
    if section is None:
        return ()
    for name in section.names():
        _check_table_name(document, section, name, section.line_of(name))
    read = {name: read_view(name, section, context) for name in section.names()}
    unreadable = {name.lower() for name, view in read.items() if view is None}
    context.problems.unreadable.update(unreadable)
    return tuple(view for view in read.values() if view is not None)


def _read_sinks(document: Section, context: ParseContext) -> tuple[Sink, ...]:
    sinks = []
    for name, section in _named_sections(document, "sinks", "sink"):
        if not _FOLDER.fullmatch(name):
            section.wrong(
                name, "its name is not a valid folder name: use letters, digits, - _ and ."
            )
        sink = read_sink(name, section, context)
        section.done()
        if sink is not None:
            sinks.append(sink)
    if "sinks" not in document:
        document.wrong("sinks", "there are no `sinks:`, so nothing would be written")
    return tuple(sinks)


def _named_sections(document: Section, name: str, what: str) -> list[tuple[str, Section]]:
    group = document.find_section(name, name)
    if group is None:
        return []
    sections = [(entry, group.find_section(entry, f"{what} {entry}")) for entry in group.names()]
    return [(entry, section) for entry, section in sections if section is not None]


def _check_table_name(
    document: Section, section: Section, name: str, line: int | None = None
) -> None:
    if not _TABLE.fullmatch(name):
        document.problems.add(
            section.line if line is None else line,
            f"{section.what}: {name!r} cannot be used in SQL: use letters, digits and _",
        )
