"""A pipeline means the same in YAML, in SQL statements and in Python, and so do its mistakes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipeline.problems import PipelineInvalid
from penstock.spark.pipeline.python_document import is_pipeline_python
from penstock.spark.pipeline.reading import read_pipeline
from penstock.spark.pipeline.spec import Pipeline

PAGE = Path(__file__).parents[4] / "docs/pipelines.md"
STEPS = "def score(ms: int) -> float:\n    return ms / 2\n\ndef enrich(rows):\n    return rows\n"

YAML = """
pipeline: web
trigger: 5 seconds
low_latency: false
settings:
  spark.sql.shuffle.partitions: 4
sources:
  clicks:
    topics: [clicks, taps]
    value: {format: json, schema: "id BIGINT, user STRING, at_ms BIGINT"}
    dead_letter: dead
    start: {clicks: {0: 23}}
    watermark: {column: at, expression: timestamp_millis(at_ms), delay: 10 minutes}
    dedup: [id]
    expect:
      has_user: {condition: user IS NOT NULL, otherwise: dead_letter}
      positive: id > 0
functions:
  score: steps:score
views:
  slow: SELECT id, 'it''s; slow' AS note, score(id) AS s FROM clicks WHERE id > 5
  rich:
    from: slow
    python: steps:enrich
    expect: {scored: {condition: s > 1, otherwise: drop}}
sinks:
  out: {from: rich, topic: out, key: user, options: {kafka.acks: all}}
  files:
    query: SELECT count(*) AS n FROM rich
    format: noop
    mode: complete
"""

SQL = """
-- The same.
SET pipeline = web;
SET trigger = '5 seconds';
SET low_latency = false;
SET spark.sql.shuffle.partitions = 4;
CREATE SOURCE clicks WITH (
  topics = ['clicks', taps],
  value = (format = json, schema = 'id BIGINT, user STRING, at_ms BIGINT'),
  dead_letter = 'dead',
  start = (clicks = (0 = 23)),
  watermark = (column = at, expression = 'timestamp_millis(at_ms)', delay = '10 minutes'),
  dedup = [id],
  expect = (
    has_user = (condition = 'user IS NOT NULL', otherwise = dead_letter), /* kept aside */
    positive = 'id > 0'
  )
);
CREATE FUNCTION score AS 'steps:score';
CREATE VIEW slow AS
  SELECT id, 'it''s; slow' AS note, score(id) AS s FROM clicks WHERE id > 5;
CREATE OR REPLACE VIEW rich FROM slow WITH (
  python = 'steps:enrich', expect = (scored = (condition = 's > 1', otherwise = 'drop'))
);
CREATE SINK out FROM rich WITH (topic = 'out', key = 'user', options = (kafka.acks = all));
CREATE SINK files WITH (format = noop, mode = complete) AS
SELECT count(*) AS n FROM rich
"""

PYTHON = """
from penstock.spark.pipeline import declare
from steps import enrich

pipeline = declare(
    pipeline="web",
    trigger="5 seconds",
    low_latency=False,
    settings={"spark.sql.shuffle.partitions": 4},
    sources={
        "clicks": {
            "topics": ["clicks", "taps"],
            "value": {"format": "json", "schema": "id BIGINT, user STRING, at_ms BIGINT"},
            "dead_letter": "dead",
            "start": {"clicks": {0: 23}},
            "watermark": {
                "column": "at",
                "expression": "timestamp_millis(at_ms)",
                "delay": "10 minutes",
            },
            "dedup": ["id"],
            "expect": {
                "has_user": {"condition": "user IS NOT NULL", "otherwise": "dead_letter"},
                "positive": "id > 0",
            },
        },
    },
    functions={"score": "steps:score"},
    views={
        "slow": "SELECT id, 'it''s; slow' AS note, score(id) AS s FROM clicks WHERE id > 5",
        "rich": {
            "from": "slow",
            "python": enrich,
            "expect": {"scored": {"condition": "s > 1", "otherwise": "drop"}},
        },
    },
    sinks={
        "out": {"from": "rich", "topic": "out", "key": "user", "options": {"kafka.acks": "all"}},
        "files": {
            "query": "SELECT count(*) AS n FROM rich",
            "format": "noop",
            "mode": "complete",
        },
    },
)
"""


def read(folder: Path, name: str, text: str) -> Pipeline:
    (folder / "steps.py").write_text(STEPS)
    (folder / name).write_text(text)
    return read_pipeline(str(folder / name), text, lambda file: (folder / file).read_text())


def meaning(value: Any) -> Any:
    """Without lines, and without what a Python file gives directly."""
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        return {
            name: meaning(getattr(value, name))
            for name in fields
            if name not in ("line", "function")
        }
    if isinstance(value, dict):
        return {name: meaning(entry) for name, entry in value.items()}
    return [meaning(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(("suffix", "text"), [("sql", SQL), ("py", PYTHON)])
def test_every_syntax_means_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, text: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    expected = meaning(read(tmp_path, "web.yaml", YAML))
    read_as = meaning(read(tmp_path, f"web_{suffix}.{suffix}", text))
    assert expected["sources"][0]["refinement"]["dedup"] == {"by": ["id"]}
    assert {**read_as, "file": ""} == {**expected, "file": ""}


def test_the_documented_examples_mean_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except that the one in Python has its function in the file itself."""
    monkeypatch.syspath_prepend(tmp_path)
    blocks = re.findall(r"^```\w+\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    by_name = {block.split("\n")[0].lstrip("#- ").split(",")[0]: block for block in blocks}
    for name in ("shop_steps.py", "visits.sql", "visits.py"):
        (tmp_path / name).write_text(by_name[name])
    sql, python = (
        read_pipeline(
            str(tmp_path / name), by_name[name], lambda file: (tmp_path / file).read_text()
        )
        for name in ("visits.sql", "visits.py")
    )
    assert (sql.functions[0].python.path, python.functions[0].python.path) == (
        "shop_steps:seconds",
        "visits:seconds",
    )
    without = {"file": "", "functions": ()}
    assert {**meaning(sql), **without} == {**meaning(python), **without}


def test_functions_of_a_python_file_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = read(tmp_path, "given.py", PYTHON)
    python = pipeline.views[1].python
    assert python is not None
    assert (python.path, callable(python.function)) == ("steps:enrich", True)


SQL_MISTAKES = [
    ("DROP VIEW a;", "1: 'DROP' is not expected; statements are SET, CREATE SOURCE, CREATE FU"),
    ("CREATE TABLE a;", "1: 'TABLE' is not expected; statements are SET"),
    ("SET trigger 5;", "1: '5' is not expected; expected here: ="),
    ("CREATE SOURCE clicks WITH topic", "1: 'topic' is not expected; expected here: ("),
    ("CREATE SOURCE c WITH (topic 'a');", "1: 'a' is not expected; expected here: ="),
    ("CREATE SOURCE c WITH (topic = 'a'", "1: 'the end of the file' is not expected; expected"),
    ("CREATE SINK a\nFROM b TO c;", "2: 'TO' is not expected; expected here: FROM, WITH (...), "),
    ("CREATE SOURCE c WITH (a = ?);", "1: not valid SQL of a pipeline at '?);'; statements are"),
    ("-- nothing", "1: the file is empty: `penstock pipeline init`"),
    ("CREATE SINK a WITH (topic = 'b') AS SELECT 1;\nCREATE SINK a WITH (topic = 'c') AS SELECT 1",
     "2: sinks: 'a' is already given in line 1"),
    ("CREATE SOURCE c\n WITH (tpic = 'a');\nCREATE SINK a WITH (topic = 'b') AS SELECT 1",
     "1: source c: needs exactly one of topic"),
    ("CREATE SINK a WITH (\n topic = 'b',\n ky = 'c') AS SELECT 1",
     "3: sink a: 'ky' is not expected here (did you mean 'key'?); possible are: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SQL_MISTAKES)
def test_mistake_in_sql_has_its_line(text: str, expected: str) -> None:
    with pytest.raises(PipelineInvalid) as failure:
        read_pipeline("web.sql", text, Path.read_text)  # type: ignore[arg-type]
    (only,) = str(failure.value).splitlines()
    assert only.startswith(f"web.sql:{expected}")


HEAD = "from penstock.spark.pipeline import declare\n\n"
PYTHON_MISTAKES = [
    ("import nothing_of_this_name\n", "3: the file fails: ModuleNotFoundError: No module named"),
    ("x = 1\n", "1: one `pipeline = declare(...)` is expected, not 0"),
    ("a = declare(sinks={})\nb = declare(sinks={})\n", "1: one `pipeline = declare(...)` is exp"),
    (
        'a = declare(\n  sinks={\n  "out": {"from": "x",\n "tpic": 1}})\n',
        "5: sink out: needs exact",
    ),
    (
        'a = declare(tigger=1, sinks={"o": {"query": "X", "format": "noop"}})',
        "3: the file: 'tigger",
    ),
    ("raise SystemExit(0)\n", "3: the file fails: SystemExit: 0"),
    ("def f(:\n  pass", "3: the file fails: SyntaxError: "),
]


@pytest.mark.parametrize(("text", "expected"), PYTHON_MISTAKES)
def test_mistake_in_python_has_its_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PipelineInvalid) as failure:
        read(tmp_path, "broken.py", HEAD + text)
    (first,) = str(failure.value).splitlines()
    assert first.startswith(f"{tmp_path}/broken.py:{expected}")


def test_files_of_sparks_declarative_api_are_not_ours() -> None:
    assert is_pipeline_python(PYTHON)
    assert not is_pipeline_python("from pyspark import pipelines as dp\n@dp.table\ndef a(): ...\n")
    assert not is_pipeline_python("def f(:")
