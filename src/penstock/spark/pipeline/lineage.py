"""Which sources and views a query reads, as far as its text tells without Spark. Pure.

Looks for names after FROM and JOIN, outside comments and strings. Invariant: it may miss a name,
but reports none that the query does not read.
"""

import re
from collections.abc import Collection, Iterator

from penstock.spark.pipeline.spec import Pipeline, Sql

_SKIPPED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_NAME = r"(?:`[^`]+`|[A-Za-z_]\w*)"
_RELATIONS = re.compile(
    rf"\b(?:FROM|JOIN)\s+({_NAME}(?:\s*,\s*{_NAME})*)(?![\w`])(?!\s*[.(])", re.IGNORECASE
)
_COMMON = re.compile(rf"(?:\bWITH\s+(?:RECURSIVE\s+)?|,\s*)({_NAME})\s+AS\s*\(", re.IGNORECASE)


def relations_in(sql: Sql, names: Collection[str]) -> set[str]:
    """Those of the names that the query reads, in lower case; its own WITH names hide others."""
    text = _SKIPPED.sub(" ", sql.text)
    hidden = {_plain(match[1]) for match in _COMMON.finditer(text)}
    read = {
        _plain(name)
        for match in _RELATIONS.finditer(text)
        for name in re.split(r"\s*,\s*", match[1])
    }
    return (read - hidden) & {name.lower() for name in names}


def later_views(pipeline: Pipeline) -> Iterator[tuple[str, int, str, int]]:
    """(view, its line, a view that it reads, that one's line), for views that are defined later:
    each is built when those below it do not exist yet. Several may be in one line."""
    indexes = {view.name.lower(): index for index, view in enumerate(pipeline.views)}
    for index, view in enumerate(pipeline.views):
        for name in sorted(read_directly(view.reads, indexes)):
            if indexes[name] >= index:
                yield view.name, view.line, name, pipeline.views[indexes[name]].line


def read_relations(pipeline: Pipeline, reads: Sql | str) -> set[str]:
    """All sources and views that a sink's query reads, directly or through views; lower case."""
    names = [relation.name for relation in (*pipeline.sources, *pipeline.views)]
    queries = {view.name.lower(): view.reads for view in pipeline.views}
    ahead = [reads.lower()] if isinstance(reads, str) else list(relations_in(reads, names))
    seen: set[str] = set()
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += read_directly(queries[name], names) if name in queries else ()
    return seen


def read_directly(reads: Sql | str, names: Collection[str]) -> set[str]:
    """Those of the names that a view or sink reads itself, in lower case."""
    if isinstance(reads, Sql):
        return relations_in(reads, names)
    return {reads.lower()} & {name.lower() for name in names}


def _plain(name: str) -> str:
    return name.strip().strip("`").lower()
