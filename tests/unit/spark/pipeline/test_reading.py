"""Reading a pipeline's file: the values of a valid one, the problems of an invalid one."""

import json
from pathlib import Path

import pytest

from penstock.spark.pipeline.problems import PipelineInvalid
from penstock.spark.pipeline.reading import read_pipeline
from penstock.spark.pipeline.spec import (
    BadValuePolicy,
    Encoding,
    FileSource,
    FileTarget,
    OutputMode,
    Pipeline,
    Sql,
    TableTarget,
    TopicSource,
    TopicTarget,
)

ROOT = Path(__file__).parents[4]
AVRO = json.dumps({"type": "record", "name": "Click", "fields": [{"name": "ms", "type": "int"}]})
LATE = "watermark: {column: at, delay: 1m}"


def read(text: str, files: dict[str, str] | None = None) -> Pipeline:
    def read_file(name: str) -> str:
        if files is None or name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return read_pipeline("clicks.yaml", text, read_file)


def problems(text: str, files: dict[str, str] | None = None) -> list[str]:
    """The reported problems, one per line, without the file's name."""
    with pytest.raises(PipelineInvalid) as failure:
        read(text, files)
    lines = str(failure.value).splitlines()
    assert all(line.startswith("clicks.yaml:") for line in lines)
    return [line.removeprefix("clicks.yaml:") for line in lines]


SINK = """
sinks:
  out: {from: clicks, format: noop}
"""


def test_short_file_gets_defaults() -> None:
    pipeline = read("sources:\n  clicks: {topic: clicks}\n" + SINK)
    (source,) = pipeline.topic_sources()
    (sink,) = pipeline.sinks
    assert (pipeline.name, pipeline.low_latency, pipeline.bootstrap) == ("clicks", True, None)
    assert source.subscription == ("subscribe", "clicks")
    assert (source.value.encoding, source.key) == (Encoding.TEXT, Encoding.TEXT)
    assert source.start == {"startingOffsets": "earliest"}
    assert (source.bad_values, source.is_stream) == (BadValuePolicy.FAIL, True)
    assert sink.checkpoint == "penstock-checkpoints/clicks/out"
    assert (sink.mode, sink.trigger) == (None, None)


def test_every_entry_is_read() -> None:
    pipeline = read(
        """
pipeline: web
bootstrap: broker:9092
checkpoints: /var/checkpoints/
trigger: 5s
low_latency: false
settings:
  spark.sql.shuffle.partitions: 4
sources:
  clicks:
    topics: [clicks, taps]
    value: {format: json, schema: "user STRING, tags ARRAY<STRUCT<a: INT, b: INT>>, at TIMESTAMP"}
    key: binary
    start: {clicks: {0: 23, 1: -2}}
    group: web
    dead_letter: dead
    headers: true
    watermark: {column: at, delay: 10 minutes}
    options: {maxOffsetsPerTrigger: 500}
  pages: {path: ./pages, format: csv, schema: {page: string}, stream: true}
views:
  slow: SELECT * FROM clicks
sinks:
  topic:
    from: slow
    topic: slow
    key: user
    partition: 1
    mode: update
    trigger: 1 minute
  files: {query: SELECT 1 AS a, path: /tables/a, format: orc, partition_by: [a, b]}
  table: {from: pages, table: pages, checkpoint: /own}
"""
    )
    clicks, pages = pipeline.sources
    assert isinstance(clicks, TopicSource)
    assert isinstance(pages, FileSource)
    assert (pipeline.name, pipeline.checkpoints) == ("web", "/var/checkpoints")
    assert pipeline.settings == {"spark.sql.shuffle.partitions": "4"}
    assert clicks.topics == ("clicks", "taps")
    assert json.loads(clicks.start["startingOffsets"]) == {"clicks": {"0": 23, "1": -2}}
    assert (clicks.dead_letter, clicks.bad_values) == ("dead", BadValuePolicy.DEAD_LETTER)
    assert clicks.refinement.watermark is not None
    assert clicks.refinement.watermark.delay == "10 minutes"
    assert (pages.columns, pages.is_stream) == ("`page` string", True)
    topic, files, table = pipeline.sinks
    assert isinstance(topic.target, TopicTarget)
    assert topic.target.value.encoding is Encoding.JSON
    assert topic.target.key == Sql(text="user", line=27)
    assert (topic.mode, topic.trigger) == (OutputMode.UPDATE, "1 minutes")
    assert files.target == FileTarget(path="/tables/a", format="orc", partition_by=("a", "b"))
    assert (files.reads, files.trigger) == (Sql(text="SELECT 1 AS a", line=31), "5 seconds")
    assert table.target == TableTarget(table="pages", format=None, partition_by=())
    assert (table.checkpoint, topic.checkpoint) == ("/own", "/var/checkpoints/web/topic")


@pytest.mark.parametrize(
    ("start", "options"),
    [
        ("latest", {"startingOffsets": "latest"}),
        ("2026-01-31T13:45:00Z", {"startingTimestamp": "1769867100000"}),
        ("2026-01-31 13:45", {"startingTimestamp": "1769867100000"}),
        ("2026-01-31T14:45:00+01:00", {"startingTimestamp": "1769867100000"}),
    ],
)
def test_start_is_a_keyword_or_a_time(start: str, options: dict[str, str]) -> None:
    pipeline = read(f"sources:\n  clicks: {{topic: clicks, start: '{start}'}}\n" + SINK)
    assert pipeline.topic_sources()[0].start == options


def test_sql_has_its_line_in_every_yaml_style() -> None:
    pipeline = read(
        """
views:
  plain: SELECT 1
  block: |
    SELECT
      1
  folded: >-
    SELECT 1
  quoted:
    "SELECT 1"
sinks:
  out: {from: plain, format: noop}
"""
    )
    lines = {view.name: view.reads.line for view in pipeline.views if isinstance(view.reads, Sql)}
    assert lines == {"plain": 3, "block": 5, "folded": 8, "quoted": 10}


def test_avro_schema_is_inline_or_in_a_file() -> None:
    for value in (f"schema: '{AVRO}'", "schema_file: click.avsc, registry_prefix: true"):
        text = f"sources:\n  clicks: {{topic: clicks, value: {{format: avro, {value}}}}}\n"
        (source,) = read(text + SINK, {"click.avsc": AVRO}).topic_sources()
        assert source.value.avro == json.loads(AVRO)
        assert source.value.skip_bytes == (5 if "registry" in value else 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: the file is empty: `penstock pipeline init`"),
        ("- a\n- b\n", "1: a pipeline is a list of `name: value` lines, with `sinks:`"),
        ("a: b: c\n", "1: not valid YAML: mapping values are not allowed here"),
        ("sinks:\n\tout: 1\n", "2: not valid YAML: found character '\\t' that cannot start any "),
        ("sources:\n  clicks: {topic: clicks}\n", "1: the file: there are no `sinks:`, so nothing"),
    ],
)
def test_invalid_yaml_is_reported(text: str, expected: str) -> None:
    assert problems(text)[0].startswith(expected)


SOURCE_MISTAKES = [
    ("topc: clicks", "2: source clicks: needs exactly one of topic, topics, topic_pattern, path"),
    ("topic: clicks\n    path: x", "4: source clicks: needs exactly one of"),
    ("topic:", "3: source clicks: 'topic' is empty: give it a value or leave it out"),
    ("topic: a/b", "2: source clicks: "),
    (
        "topic: clicks\n    grup: g",
        "4: source clicks: 'grup' is not expected here (did you mean 'group'?)",
    ),
    ("topic: clicks\n    topic: taps", "4: source clicks: 'topic' is already given in line 3"),
    (
        "topic: clicks\n    value: jsn",
        "4: source clicks: 'value' is 'jsn', but must be one of: avro,",
    ),
    ("topic: clicks\n    value: json", "4: source clicks: JSON needs the columns: value: {format"),
    ("topic: clicks\n    value: {format: avro}", "4: source clicks, value: Avro needs its schema"),
    (
        "topic: clicks\n    value: {format: json, schema: a}",
        "4: source clicks, value: 'schema': 'a' is not a column: write `name TYPE`",
    ),
    (
        "topic: clicks\n    value:\n      format: json\n      schema: a INT, A INT",
        "6: source clicks, value: 'schema': column 'A' occurs twice",
    ),
    (
        "topic: clicks\n    value: {format: json, schema: _offset INT}",
        "4: source clicks: columns _offset are the record's own metadata; rename yours",
    ),
    (
        "topic: clicks\n    value: {format: avro, schema_file: no.avsc}",
        "4: source clicks, value: cannot read no.avsc: No such file or directory",
    ),
    (
        "topic: clicks\n    value: {format: avro, schema: '[1'}",
        "4: source clicks, value: 'schema': not valid JSON: ",
    ),
    (
        "topic: clicks\n    start: yesterday",
        "4: source clicks: 'start' is 'yesterday', but must be ",
    ),
    (
        "topic: clicks\n    start: group",
        "4: source clicks: to start at a group's offsets, name",
    ),
    (
        "topic: clicks\n    start: {clicks: 5}",
        "4: source clicks, start: offsets are written as TOPIC",
    ),
    (
        "topic: clicks\n    headers: maybe",
        "4: source clicks: 'headers' is 'maybe', but must be true",
    ),
    (
        "topic: clicks\n    dead_letter: dead",
        "2: source clicks: every value is text, so nothing can",
    ),
    (
        "topic: clicks\n    dead_letter: clicks\n    value: {format: json, schema: a INT}",
        "2: source clicks: it reads its own dead-letter topic: name another topic",
    ),
    (
        "topic: clicks\n    dead_letter: d\n    bad_values: skip\n    value: {format: avro}",
        "5: source clicks: skip contradicts the dead_letter topic; drop one",
    ),
    (
        "topic: clicks\n    watermark: {column: at}",
        "4: source clicks, watermark: 'delay' is missing",
    ),
    (
        "topic: clicks\n    watermark: {column: at, delay: soon}",
        "4: source clicks, watermark: 'delay' is 'soon', but must be a duration",
    ),
    ("path: x", "2: source clicks: files need a `format:`: parquet"),
    (
        "path: x\n    format: csv\n    stream: true",
        "5: source clicks: a stream of files needs a `schema",
    ),
    (
        "path: x\n    format: csv\n    watermark: {column: at, delay: 1m}",
        "5: source clicks: only a stream has a watermark; add `stream: true`",
    ),
    (
        "topic: clicks\n    value: {format: json, schema: att TIMESTAMP}\n    " + LATE,
        "5: source clicks: there is no column 'at' for the watermark (did you mean 'att'?)",
    ),
    (
        "topic: clicks\n    watermark: {column: at, delay: 1m}",
        "4: source clicks: there is no column 'at' for the watermark",
    ),
    (
        "path: x\n    format: csv\n    stream: true\n    schema: user STRING\n    " + LATE,
        "7: source clicks: there is no column 'at' for the watermark; there are: user",
    ),
    (
        "topic: clicks\n    options:\n      maxOffsetsPerTriger: 5",
        "5: source clicks: option maxOffsetsPerTriger='5': there is no such option; did",
    ),
    (
        "topic: clicks\n    options:\n      minPartitions: 2\n      maxOffsetsPerTrigger: many",
        "6: source clicks: option maxOffsetsPerTrigger='many': write a whole number",
    ),
    (
        "topic: clicks\n    options:\n      kafka.isolation.level: read_all",
        "5: source clicks: option kafka.isolation.level='read_all': write one of",
    ),
    (
        "topic: clicks\n    options:\n      subscribe: taps",
        "5: source clicks: option subscribe has its own entry: use `topic:`",
    ),
    (
        (
            "topic: clicks\n    options: {security.protocol: sasl_ssl, sasl.mechanism: PLAIN, "
            "sasl.username: a, sasl.password: s3cr3t}"
        ),
        "4: source clicks: option sasl.password is a secret: write ${env:NAME}",
    ),
]


@pytest.mark.parametrize(("lines", "expected"), SOURCE_MISTAKES)
def test_mistake_in_a_source_is_reported_with_its_line(lines: str, expected: str) -> None:
    reported = problems(
        f"sources:\n  clicks:\n    {lines}\nsinks:\n  out: {{query: X, format: noop}}\n"
    )
    assert reported[0].startswith(expected)


SINK_MISTAKES = [
    ("from: clicks", "4: sink out: needs exactly one of topic, path and table, or a format"),
    ("topic: out", "4: sink out: needs either `from:` a source or view, or a `query:` in SQL"),
    ("from: clik\n    topic: out", "4: sink out: there is no source or view 'clik' (did you mean"),
    ("from: clicks\n    topic: out\n    path: x", "7: sink out: needs exactly one of topic, path"),
    (
        "from: clicks\n    topic: out\n    mode: upsert",
        "7: sink out: 'mode' is 'upsert', but must be",
    ),
    ("from: clicks\n    path: out\n    mode: update", "4: sink out: files can only be appended to"),
    (
        "from: clicks\n    topic: out\n    mode: overwrite",
        "4: sink out: a topic can only be appended",
    ),
    (
        "from: clicks\n    topic: out\n    trigger: often",
        "7: sink out: 'trigger' is 'often', but must",
    ),
    (
        "from: clicks\n    topic: out\n    tigger: 1s",
        "7: sink out: 'tigger' is not expected here (did",
    ),
    (
        "from: clicks\n    topic: out\n    options:\n      kafka.acks: some",
        "8: sink out: option kafka.acks='some': write one of all, -1, 1, 0",
    ),
]


@pytest.mark.parametrize(("lines", "expected"), SINK_MISTAKES)
def test_mistake_in_a_sink_is_reported_with_its_line(lines: str, expected: str) -> None:
    text = f"sources:\n  clicks: {{topic: clicks}}\nsinks:\n  out:\n    {lines}\n"
    reported = problems(text)
    assert reported[0].startswith(expected)


def test_all_mistakes_are_reported_in_line_order() -> None:
    reported = problems(
        """
tigger: 1s
sources:
  two-words: {topic: a}
  clicks: {topic: clicks}
views:
  Clicks: SELECT 1
sinks:
  one: {from: nothing, format: noop}
  two: {from: clicks, path: x, checkpoint: /same}
  three: {from: clicks, path: y, checkpoint: /same}
settings: {shuffle: 1}
"""
    )
    assert [problem.split(":")[0] for problem in reported] == ["2", "4", "7", "9", "11", "12"]
    assert "cannot be used in SQL" in reported[1]
    assert "is already used in line 5" in reported[2]
    assert "its checkpoint /same is also that of sink two; each sink needs its own" in reported[4]
    assert "'shuffle' is not a Spark setting" in reported[5]


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "src/penstock/spark/pipeline/example.yaml",
        *sorted((ROOT / "examples/pipelines").glob("*.yaml")),
        *sorted((ROOT / "examples/pipelines").glob("*.sql")),
    ],
    ids=lambda path: path.name,
)
def test_every_example_is_a_valid_pipeline(path: Path) -> None:
    pipeline = read_pipeline(str(path), path.read_text(), lambda n: (path.parent / n).read_text())
    assert pipeline.sinks


LATER = """
sources:
  clicks: {topic: clicks}
views:
  top: SELECT * FROM users JOIN `clicks` ON true -- FROM below
  users: WITH below AS (SELECT 1) SELECT *, 'FROM below' AS t FROM clicks, below
  below: SELECT * FROM users
  again: SELECT * FROM again
sinks:
  out: {from: below, topic: clicks}
  other: {query: SELECT value FROM clicks.part, topic: clicks}
"""


def test_views_below_their_use_and_sinks_into_their_own_source_are_reported() -> None:
    reported = problems(LATER)
    assert reported[:2] == [
        "5: view top: reads view users, which is below it (line 6): define views before use",
        "8: view again: reads itself (line 8): define views before use",
    ]
    assert len(reported) == 3
    assert reported[2].startswith("10: sink out: it writes topic 'clicks', which its own source")
