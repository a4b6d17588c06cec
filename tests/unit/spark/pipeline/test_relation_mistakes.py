"""Mistakes in what refines sources and views, and in Python functions: one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.pipeline.problems import PipelineInvalid
from penstock.spark.pipeline.python_functions import NoFunction, is_beside, return_type_of
from penstock.spark.pipeline.reading import read_pipeline

FILES = {"steps.py": "def score(ms): ...\nLIMIT = 5\n", "broken.py": "def f(:\n"}


def problems(text: str) -> list[str]:
    def read_file(name: str) -> str:
        if name not in FILES:
            raise FileNotFoundError(2, "No such file or directory", name)
        return FILES[name]

    with pytest.raises(PipelineInvalid) as failure:
        read_pipeline("clicks.yaml", text, read_file)
    return [line.removeprefix("clicks.yaml:") for line in str(failure.value).splitlines()]


def read(text: str) -> list[str]:
    pipeline = read_pipeline("clicks.yaml", text, lambda name: FILES[name])
    return [view.name for view in pipeline.views]


ONE_LINE = "sources: {s: {topic: t}}\nsinks: {out: {from: b, topic: u}}\n"


def test_views_of_one_line_are_in_order() -> None:
    assert read(ONE_LINE + "views: {a: SELECT * FROM s, b: SELECT * FROM a}\n") == ["a", "b"]
    assert problems(ONE_LINE + "views: {b: SELECT * FROM a, a: SELECT * FROM s}\n") == [
        "3: view b: reads view a, which is below it (line 3): define views before use"
    ]
    assert problems(ONE_LINE + "views: {b: SELECT * FROM b}\n") == [
        "3: view b: reads itself (line 3): define views before use"
    ]
    assert problems(ONE_LINE + "views: {b: SELECT 1, B: SELECT 2}\n") == [
        "3: the name 'B' is already used in line 3"
    ]


def test_dead_letters_of_a_view_have_a_topic_and_a_checkpoint_of_their_own() -> None:
    view = "from: s, expect: {e: {condition: value > '', otherwise: dead_letter}}"
    text = ONE_LINE + f"views: {{b: {{{view}, dead_letter: t}}}}\n"
    assert problems(text) == [
        "3: view b: its dead-letter topic 't' is read by its own source s: name another topic"
    ]
    text = text.replace("dead_letter: t}", "dead_letter: d}").replace("out:", "b.dead-letter:")
    assert "is also that of sink b.dead-letter" in problems(text)[0]


def test_a_name_with_an_annotation_is_a_function() -> None:
    FILES["noted.py"] = "f: object = lambda ms: ms\n"
    assert read(ONE_LINE + "views: {b: SELECT 1}\nfunctions: {f: noted:f}\n") == ["b"]


JSON = 'topic: clicks\n    value: {format: json, schema: "id INT, at TIMESTAMP"}\n    '
LATE = "watermark: {column: at, delay: 1m}\n    "
SOURCE = [
    (
        JSON + "dedup: id",
        "5: source clicks: to find duplicates in a stream, say how late they come",
    ),
    (
        JSON + LATE + "dedup: idd",
        "6: source clicks: there is no column 'idd' to find duplicates by (did you mean ",
    ),
    (JSON + "dedup: []", "5: source clicks: 'dedup' is an empty list"),
    (JSON + "dedup: {by: id}", "5: source clicks: 'dedup' must be a list of values"),
    (JSON + "watermark: {colum: at, delay: 1m}", "5: source clicks, watermark: 'colum' is not exp"),
    (
        JSON + "watermark: {column: at, expression: '', delay: 1m}",
        "5: source clicks, watermark: 'expression' is empty",
    ),
    (JSON + "watermark: 10 minutes", "5: source clicks: 'watermark' must have `name: value` lines"),
    (JSON + "expect: id > 0", "5: source clicks: 'expect' must have `name: value` lines below it"),
    (
        JSON + "expect:\n      a: {condition: id > 0, otherwise: ignore}",
        "6: source clicks, expect, a: 'otherwise' is 'ignore', but must be one of: dead_",
    ),
    (JSON + "expect:\n      a: {otherwise: drop}", "6: source clicks, expect, a: 'condition' is m"),
    (
        JSON + "expect:\n      a: {condition: id > 0, else: drop}",
        "6: source clicks, expect, a: 'els",
    ),
    (JSON + "expect:\n      a: [id > 0]", "6: source clicks, expect: 'a' must have `name: value`"),
    (
        JSON + "expect:\n      a: {condition: id > 0, otherwise: dead_letter}",
        "2: source clicks: expectations that keep rows aside need a topic: `dead_letter: TOPIC`",
    ),
    (
        "path: x\n    format: csv\n    expect:\n      a: {condition: i, otherwise: dead_letter}",
        "2: source clicks: only topics and views keep rows aside: expect it in a view",
    ),
]


@pytest.mark.parametrize(("lines", "expected"), SOURCE)
def test_mistake_in_a_source(lines: str, expected: str) -> None:
    text = f"sources:\n  clicks:\n    {lines}\nsinks:\n  out: {{from: clicks, format: noop}}\n"
    (first,) = problems(text)
    assert first.startswith(expected)


def test_plain_values_may_be_kept_aside_by_expectations_alone() -> None:
    text = """
sources:
  lines:
    topic: lines
    dead_letter: dead
    expect: {short: {condition: length(value) < 9, otherwise: dead_letter}}
sinks:
  out: {from: lines, format: noop}
"""
    assert read_pipeline("lines.yaml", text, str).sources[0].refinement.sends_dead_letters()


VIEW = [
    ("{from: clicks, query: SELECT 1}", "4: view slow: needs either `from:` a source or view, or"),
    ("{dedup: id}", "4: view slow: needs either `from:` a source or view, or a `query:` in SQL"),
    ("{from: clics}", "4: view slow: there is no source or view 'clics' (did you mean 'clicks'?)"),
    ("{from: slow}", "4: view slow: reads itself (line 4): define views before use"),
    ("{from: clicks, dedup: id}", "4: view slow: to find duplicates in a stream, say how late"),
    ("{from: clicks, dead_letter: dead}", "4: view slow: nothing is kept aside in 'dead': add an "),
    (
        "{from: clicks, expect: {a: {condition: x, otherwise: dead_letter}}}",
        "4: view slow: expectat",
    ),
    (
        "{from: clicks, dead_letter: a b, expect: {a: {condition: x, otherwise: dead_letter}}}",
        "4: view slow: ",
    ),
    ("{from: clicks, watermark: {column: at, delay: late}}", "4: view slow, watermark: 'delay' is"),
    (
        "{from: clicks, python: steps}",
        "4: view slow: 'python': 'steps' is not an import path: write",
    ),
    (
        "{from: clicks, python: 'steps:scor'}",
        "4: view slow: 'python': module steps has no 'scor' (did you mean 'score'?); it ",
    ),
    (
        "{from: clicks, python: 'broken:f'}",
        "4: view slow: 'python': module broken is not valid Pyth",
    ),
    (
        "{from: clicks, python: 'no_such_module:f'}",
        "4: view slow: 'python': there is no module no_such_module: it is looked for bes",
    ),
    ("{from: clicks, pyton: 'steps:score'}", "4: view slow: 'pyton' is not expected here (did you"),
]


@pytest.mark.parametrize(("view", "expected"), VIEW)
def test_mistake_in_a_view(view: str, expected: str) -> None:
    sink = "sinks:\n  out: {from: slow, format: noop}\n"
    text = f"sources:\n  clicks: {{topic: clicks}}\nviews:\n  slow: {view}\n{sink}"
    (first,) = problems(text)
    assert first.startswith(expected)


def test_watermark_of_what_a_view_reads_is_enough_to_find_duplicates() -> None:
    text = """
sources:
  clicks: {topic: a, watermark: {column: _timestamp, delay: 1m}}
views:
  again: SELECT * FROM clicks
  single: {query: SELECT * FROM again, dedup: value}
sinks:
  out: {from: single, format: noop}
"""
    assert read_pipeline("clicks.yaml", text, str).views[1].refinement.dedup is not None


FUNCTION = [
    ("two-words: steps:score", "2: functions: 'two-words' cannot be used in SQL: use letters"),
    ("score: {returns: INT}", "2: function score: 'python' is missing: python: module:function"),
    ("score: {python: steps:score, return: INT}", "2: function score: 'return' is not expected"),
    ("score: [steps]", "2: functions: 'score' must have `name: value` lines below it"),
    ("score: steps.py:score", "2: functions: 'score': there is no module steps.py: it is looked"),
]


@pytest.mark.parametrize(("function", "expected"), FUNCTION)
def test_mistake_in_a_function(function: str, expected: str) -> None:
    text = f"functions:\n  {function}\nsinks:\n  out: {{query: SELECT 1, format: noop}}\n"
    (first,) = problems(text)
    assert first.startswith(expected)


def test_result_type_comes_from_the_annotation() -> None:
    def half(ms: int) -> float | None:
        return ms / 2

    def untyped(ms):  # type: ignore[no-untyped-def]
        return ms

    assert return_type_of(half) == "DOUBLE"
    with pytest.raises(NoFunction, match=r"annotate it \(-> float\), or give `returns:`"):
        return_type_of(untyped)


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("steps", "/shop/steps.py", True),
        ("steps.deep.one", "/shop/steps/deep/one.py", True),
        ("penstock.spark", "/shop/src/penstock/spark/__init__.py", False),
        ("numpy", "/shop/.venv/lib/site-packages/numpy/__init__.py", False),
        ("json", "/usr/lib/json/__init__.py", False),
        ("sys", None, False),
    ],
)
def test_modules_beside_the_file_travel_and_installed_ones_do_not(
    name: str, file: str | None, expected: bool
) -> None:
    assert is_beside(name, file, Path("/shop")) is expected
