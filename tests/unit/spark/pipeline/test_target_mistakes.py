"""Mistakes in sinks that merge into tables or have several targets: one line each."""

from __future__ import annotations

import pytest

from penstock.spark.pipeline.problems import PipelineInvalid
from penstock.spark.pipeline.reading import read_pipeline
from penstock.spark.pipeline.spec import BranchTargets, FileTarget, LakeTarget, TopicTarget

HEAD = "sources:\n  clicks: {topic: clicks}\nsinks:\n  out:\n    from: clicks\n    "


def problems(lines: str, head: str = HEAD) -> list[str]:
    with pytest.raises(PipelineInvalid) as failure:
        read_pipeline("clicks.yaml", head + lines, str)
    return [line.removeprefix("clicks.yaml:") for line in str(failure.value).splitlines()]


def test_targets_are_not_empty() -> None:
    assert problems("targets: {}")[0].startswith("6: sink out: 'targets' is empty")


def test_a_path_with_a_slash_is_the_same_path() -> None:
    reported = problems("targets: {one: {path: x/}, two: {path: x}}")
    assert reported == ["6: sink out, target two: x is also the path of target one"]


DELTA = "path: x\n    format: delta\n    "
MERGES = [
    (
        DELTA + "options: {AWS_REGION: x, AWS_SECRET_ACCESS_KEY: hidden}",
        "8: sink out: option AWS_SECRET_ACCESS_KEY is a secret: write ${env:NAME} or ${file:PATH}",
    ),
    ("path: x\n    upsert: {key: id}", "7: sink out: upsert needs `format: delta` or `format: ice"),
    (
        DELTA + "upsert: {order: at}",
        "8: sink out, upsert: 'key' is missing: {key: id}, or {key: [s",
    ),
    (
        DELTA + "upsert: {key: id, oder: at}",
        "8: sink out, upsert: 'oder' is not expected here (did",
    ),
    (DELTA + "upsert: id", "8: sink out: 'upsert' must have `name: value` lines below it"),
    (DELTA + "scd2: {key: id}", "8: sink out, scd2: 'order' is missing: the column that says when"),
    (
        DELTA + "upsert: {key: id}\n    scd2: {key: id, order: at}",
        "9: sink out: a table is either upserted (`upsert:`) or has versions (`scd2:`)",
    ),
    (
        DELTA + "mode: update",
        "4: sink out: a table is appended to; for mode update say how rows re",
    ),
    (
        DELTA + "mode: complete\n    upsert: {key: id}",
        "4: sink out: rows are merged as they change: use `mode: update`, or drop `mode:`",
    ),
    (
        "path: s3://bucket/x\n    format: iceberg",
        "4: sink out: Iceberg tables are written to local paths, whose catalog is a file beside",
    ),
    ("topic: a\n    value: debezium", "7: sink out: debezium is a format to read, not to write"),
]


@pytest.mark.parametrize(("lines", "expected"), MERGES)
def test_mistake_in_a_merge(lines: str, expected: str) -> None:
    (only,) = problems(lines)
    assert only.startswith(expected)


TARGETS = "targets:\n      a: "
BRANCHES = [
    ("targets: [a, b]", "6: sink out: 'targets' must have `name: value` lines below it"),
    (
        "path: x\n    targets: {a: {topic: b}}",
        "6: sink out: 'path' belongs to one of the `targets:",
    ),
    (
        TARGETS + "{where: ms > 1}",
        "7: sink out, target a: needs exactly one of topic, path and tab",
    ),
    (
        TARGETS + "{topic: b, were: x}",
        "7: sink out, target a: 'were' is not expected here (did you",
    ),
    (TARGETS + "{topic: b c}", "7: sink out, target a: "),
    (TARGETS + "{topic: clicks}", "7: sink out, target a: it writes topic 'clicks', which its own"),
    (
        TARGETS + "{topic: b, select: 'x, least(y, 2)'}",
        "7: sink out, target a: 'select' is a list of expressions: [x, least(y, 2)]",
    ),
    (
        TARGETS + "{table: t}",
        "7: sink out, target a: a table of the catalog cannot be one of sever",
    ),
    (
        TARGETS + "{topic: b, options: {kafka.acks: all}}",
        "7: sink out, target a: all topics of a sink are written in one transaction: move its",
    ),
    (
        TARGETS + "{path: x}\n      b: {path: x}",
        "8: sink out, target b: x is also the path of target a",
    ),
    (
        "mode: complete\n    " + TARGETS + "{path: x}",
        "4: sink out: several targets are appended to",
    ),
]


@pytest.mark.parametrize(("lines", "expected"), BRANCHES)
def test_mistake_in_several_targets(lines: str, expected: str) -> None:
    (only,) = problems(lines)
    assert only.startswith(expected)


def test_debezium_needs_the_columns_of_the_table() -> None:
    head = "sources:\n  rows:\n    topic: rows\n    "
    sink = "\nsinks:\n  out: {from: rows, format: noop}\n"
    (message,) = problems("value: debezium" + sink, head)
    assert message.startswith("4: source rows: Debezium needs the columns of the table: value: {")
    (message,) = problems("value: {format: debezium, schema: _op INT}" + sink, head)
    assert message.startswith("4: source rows: columns _op are the record's own metadata; rename")


def test_targets_are_read() -> None:
    lines = "targets:\n      a: {topic: b, select: [x, y], where: x > 1}\n      c: {path: d}\n"
    (sink,) = read_pipeline("clicks.yaml", HEAD + lines, str).sinks
    assert isinstance(sink.target, BranchTargets)
    first, second = sink.target.branches
    assert (first.select, first.where and first.where.text) == (("x", "y"), "x > 1")
    assert [type(first.target), type(second.target)] == [TopicTarget, FileTarget]


@pytest.mark.parametrize(
    ("jars", "kind"), [("io.delta:delta-spark_2.13:4.0.0", FileTarget), ("a:b:1", LakeTarget)]
)
def test_delta_is_sparks_own_if_its_jars_are_asked_for(jars: str, kind: type) -> None:
    settings = f"settings: {{spark.jars.packages: '{jars}'}}\n"
    (sink,) = read_pipeline("clicks.yaml", settings + HEAD + DELTA, str).sinks
    assert isinstance(sink.target, kind)
