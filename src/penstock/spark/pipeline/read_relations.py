"""Reads what refines a source or view (event time, expectations, duplicates), views, and the Python
functions that SQL calls.
"""

from penstock.spark.pipeline.document import Section
from penstock.spark.pipeline.python_functions import find_mistake
from penstock.spark.pipeline.read_values import ParseContext, find_sql
from penstock.spark.pipeline.spec import (
    Dedup,
    Expectation,
    PipelineView,
    PythonFunction,
    Refinement,
    Sql,
    SqlFunction,
    ViolationPolicy,
    Watermark,
)

_WATERMARK = "{column: at, delay: 10 minutes}"


def read_refinement(section: Section, context: ParseContext) -> Refinement:
    return Refinement(
        watermark=_read_watermark(section, context),
        expectations=_read_expectations(section),
        dedup=_read_dedup(section),
    )


def _read_watermark(section: Section, context: ParseContext) -> Watermark | None:
    watermark = section.find_section("watermark")
    if watermark is None:
        return None
    column = watermark.find_value("column")
    expression = find_sql(watermark, "expression")
    delay = context.find_span(watermark, "delay")
    watermark.done()
    are_known = set(watermark.names()) <= {"column", "expression", "delay"}
    for name in ("column", "delay") if are_known else ():
        if name not in watermark:
            watermark.wrong(name, f"{name!r} is missing: {_WATERMARK}")
    if column is None or delay is None:
        return None
    return Watermark(column=column, delay=delay, line=watermark.line, expression=expression)


def _read_dedup(section: Section) -> Dedup | None:
    columns = section.find_texts("dedup")
    return Dedup(by=tuple(columns), line=section.line_of("dedup")) if columns else None


def _read_expectations(section: Section) -> tuple[Expectation, ...]:
    group = section.find_section("expect")
    if group is None:
        return ()
    expectations = []
    for name in group.names():
        condition, policy = _read_expectation(group, name)
        if condition is not None:
            expectations.append(
                Expectation(
                    name=name, condition=condition, otherwise=policy or ViolationPolicy.FAIL
                )
            )
    return tuple(expectations)


def _read_expectation(group: Section, name: str) -> tuple[Sql | None, ViolationPolicy | None]:
    if group.is_text(name):
        return find_sql(group, name), None
    inner = group.find_section(name)
    if inner is None:
        return None, None
    condition = find_sql(inner, "condition")
    if "condition" not in inner:
        inner.wrong("condition", "'condition' is missing: {condition: ms >= 0, otherwise: drop}")
    policy = inner.find_choice("otherwise", ViolationPolicy)
    inner.done()
    return condition, policy


def read_view(name: str, section: Section, context: ParseContext) -> PipelineView | None:
    """None if the view is wrong, which is reported. A view is a query, or has its own entries."""
    line = section.line_of(name)
    if section.is_text(name):
        sql = find_sql(section, name)
        return None if sql is None else _view(name, line, sql)
    inner = section.find_section(name, f"view {name}")
    if inner is None:
        return None
    relation, query = inner.find_value("from"), find_sql(inner, "query")
    if ("from" in inner) == ("query" in inner):
        inner.wrong("query", "needs either `from:` a source or view, or a `query:` in SQL")
    python = read_function_path(inner, "python", context)
    reads = relation or query
    dead_letter = inner.find_value("dead_letter")
    refinement = read_refinement(inner, context)
    inner.done()
    if reads is None:
        return None
    return _view(name, line, reads, python, refinement, dead_letter)


def _view(
    name: str,
    line: int,
    reads: str | Sql,
    python: PythonFunction | None = None,
    refinement: Refinement | None = None,
    dead_letter: str | None = None,
) -> PipelineView:
    return PipelineView(
        name=name,
        line=line,
        reads=reads,
        python=python,
        refinement=refinement or Refinement(),
        dead_letter=dead_letter,
    )


def read_function(name: str, section: Section, context: ParseContext) -> SqlFunction | None:
    """`score: shop.scoring:score`, or entries of its own: python and returns."""
    if section.is_text(name):
        python = read_function_path(section, name, context)
    else:
        inner = section.find_section(name, f"function {name}")
        if inner is None:
            return None
        if "python" not in inner:
            inner.wrong("python", "'python' is missing: python: module:function")
        returns = inner.find_value("returns")
        python = read_function_path(inner, "python", context, returns)
        inner.done()
    if python is None:
        return None
    return SqlFunction(name=name, line=section.line_of(name), python=python)


def read_function_path(
    section: Section, name: str, context: ParseContext, returns: str | None = None
) -> PythonFunction | None:
    path = section.find_value(name)
    if path is None:
        return None
    function = context.functions.get(path)
    mistake = None if function else find_mistake(path, context.read_file)
    if mistake is not None:
        section.wrong(name, f"{name!r}: {mistake}")
        return None
    return PythonFunction(path=path, line=section.line_of(name), returns=returns, function=function)
