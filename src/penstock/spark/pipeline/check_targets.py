"""Checks sinks that merge into tables or have several targets. Needs no Spark."""

from penstock.spark.codec.ddl_columns import NotColumns, split_columns
from penstock.spark.pipeline.connector_options import find_literal_store_secrets
from penstock.spark.pipeline.problems import Problems
from penstock.spark.pipeline.spec import (
    BranchTargets,
    LakeFormat,
    LakeTarget,
    OutputMode,
    Sink,
    TableTarget,
    TopicTarget,
    branch_sinks,
)


def check_merges(sink: Sink, problems: Problems) -> None:
    if isinstance(sink.target, BranchTargets):
        _check_branches(sink, problems)
    for part in branch_sinks(sink) or [sink]:
        if isinstance(part.target, LakeTarget):
            _check_lake(part, part.target, problems)


def _is_several(expression: str) -> bool:
    try:
        return len(split_columns(expression)) > 1
    except NotColumns:
        return False  # Spark says what is wrong with it


def _check_lake(sink: Sink, target: LakeTarget, problems: Problems) -> None:
    where = f"sink {sink.name}"
    for name in find_literal_store_secrets(sink.options):
        problems.add(
            sink.options[name].line,
            f"{where}: option {name} is a secret: write ${{env:NAME}} or ${{file:PATH}}",
        )
    if target.format is LakeFormat.ICEBERG and "://" in target.path.removeprefix("file://"):
        problems.add(
            sink.line,
            f"{where}: Iceberg tables are written to local paths, whose catalog is a file beside "
            "them; use `format: delta`, or Spark's jars under `settings:`",
        )
    if sink.mode not in (None, OutputMode.APPEND) and target.merge is None:
        problems.add(
            sink.line,
            f"{where}: a table is appended to; for mode {sink.mode} say how rows replace others: "
            "`upsert: {key: id}`",
        )
    if sink.mode in (OutputMode.COMPLETE, OutputMode.OVERWRITE) and target.merge is not None:
        problems.add(
            sink.line,
            f"{where}: rows are merged as they change: use `mode: update`, or drop `mode:`",
        )


def _check_branches(sink: Sink, problems: Problems) -> None:
    assert isinstance(sink.target, BranchTargets)
    where = f"sink {sink.name}"
    if sink.mode not in (None, OutputMode.APPEND, OutputMode.UPDATE):
        problems.add(
            sink.line, f"{where}: several targets are appended to: drop `mode: {sink.mode}`"
        )
    paths: dict[str, str] = {}
    for branch in sink.target.branches:
        if isinstance(branch.target, TableTarget):
            problems.add(
                branch.line,
                f"{where}, target {branch.name}: a table of the catalog cannot be one of several "
                "targets, because a batch that is run again would be there twice: use a `path:`",
            )
        if isinstance(branch.target, TopicTarget) and branch.options:
            problems.add(
                branch.line,
                f"{where}, target {branch.name}: all topics of a sink are written in one "
                "transaction: move its `options:` to the sink",
            )
        for expression in branch.select:
            if "," in expression and _is_several(expression):
                problems.add(
                    branch.line,
                    f"{where}, target {branch.name}: 'select' is a list of expressions: "
                    f"[{expression}]",
                )
        path = getattr(branch.target, "path", "").rstrip("/")
        if path and paths.setdefault(path, branch.name) != branch.name:
            problems.add(
                branch.line,
                f"{where}, target {branch.name}: {path} is also the path of target {paths[path]}",
            )
