"""Reads the sinks of a pipeline's file: a topic, files, a table or a format without a target."""

from penstock.spark.pipeline.document import Section
from penstock.spark.pipeline.read_values import (
    ParseContext,
    find_sql,
    read_options,
    read_value_format,
)
from penstock.spark.pipeline.spec import (
    Branch,
    BranchTargets,
    Encoding,
    FileTarget,
    FormatTarget,
    LakeFormat,
    LakeTarget,
    Merge,
    MergeKind,
    OutputMode,
    SingleTarget,
    Sink,
    Sql,
    TableTarget,
    Target,
    TopicTarget,
)

_TARGETS = ("topic", "path", "table")
_LAKES = tuple(LakeFormat)
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
    if "targets" in section:
        return _read_branches(section, context)
    return _read_single_target(section, context)


def _read_branches(section: Section, context: ParseContext) -> BranchTargets | None:
    group = section.find_section("targets", f"{section.what}, targets")
    for name in (*_TARGETS, "format"):
        if name in section:
            section.wrong(name, f"{name!r} belongs to one of the `targets:`, or drop `targets:`")
            section.give_up()
            return None
    if group is None:
        return None
    if not group.names():
        section.wrong("targets", "'targets' is empty: name a topic, a path or a format below it")
    branches = []
    for name in group.names():
        inner = group.find_section(name, f"{section.what}, target {name}")
        if inner is not None:
            branch = _read_branch(name, inner, context)
            inner.done()
            branches += [branch] if branch is not None else []
    return BranchTargets(branches=tuple(branches)) if branches else None


def _read_branch(name: str, inner: Section, context: ParseContext) -> Branch | None:
    where, select = find_sql(inner, "where"), tuple(inner.find_texts("select") or ())
    target = _read_single_target(inner, context)
    options = read_options(inner)
    if target is None:
        return None
    return Branch(
        name=name, line=inner.line, where=where, select=select, target=target, options=options
    )


def _read_single_target(section: Section, context: ParseContext) -> SingleTarget | None:
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
        return _read_files(section, context)
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


def _read_files(section: Section, context: ParseContext) -> FileTarget | LakeTarget | None:
    path = section.find_value("path")
    format_name = section.find_value("format") or DEFAULT_FORMAT
    partition_by = tuple(section.find_texts("partition_by") or ())
    merge = _read_merge(section)
    if format_name in _LAKES and not context.has_lake_jars:
        lake = LakeTarget(
            path=path or "",
            format=LakeFormat(format_name),
            partition_by=partition_by,
            merge=merge,
        )
        return lake if path else None
    if merge is not None:
        section.wrong(
            merge.kind,
            f"{merge.kind} needs `format: delta` or `format: iceberg`, not {format_name}",
        )
    files = FileTarget(path=path or "", format=format_name, partition_by=partition_by)
    return files if path else None


def _read_merge(section: Section) -> Merge | None:
    kinds = [kind for kind in MergeKind if kind in section]
    if len(kinds) > 1:
        section.wrong(kinds[1], "a table is either upserted (`upsert:`) or has versions (`scd2:`)")
    if not kinds:
        return None
    for kind in kinds[1:]:
        section.find_section(kind.value)
    inner = section.find_section(kinds[0].value)
    if inner is None:
        return None
    keys, order = inner.find_texts("key"), inner.find_value("order")
    merge = Merge(
        kind=kinds[0],
        keys=tuple(keys or ()),
        line=inner.line,
        order=order,
        delete=find_sql(inner, "delete"),
    )
    inner.done()
    if "key" not in inner:
        inner.wrong("key", "'key' is missing: {key: id}, or {key: [shop, id]}")
    if kinds[0] is MergeKind.SCD2 and "order" not in inner:
        inner.wrong("order", "'order' is missing: the column that says when a version begins")
    return merge if keys and (order or kinds[0] is MergeKind.UPSERT) else None


def _read_table(section: Section) -> TableTarget | None:
    table = section.find_value("table")
    target = TableTarget(
        table=table or "",
        format=section.find_value("format"),
        partition_by=tuple(section.find_texts("partition_by") or ()),
    )
    return target if table else None
