"""What refines rows (event time, expectations, duplicates), Python functions, and joined streams,
on a real Spark and broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long
from tests.spark.pipelines import (
    documented,
    records_of,
    run_file,
    run_once,
    values_of,
    write_pipeline,
)
from tests.spark.topics import Sent, create_topic, send

import penstock
from penstock.spark.pipeline.failures import QueryFailed

MINUTE_MS = 60_000


def click(number: int, user: str | None, at_ms: int, ms: int) -> Sent:
    return Sent(json.dumps({"id": number, "user": user, "at_ms": at_ms, "ms": ms}).encode())


def test_the_documented_rows_are_refined_scored_and_joined(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    for topic in ("visits", "orders", "visits-dead", "odd", "rich", "ordered"):
        create_topic(servers, f"shop-{topic}")
    steps = documented("shop_steps.py").replace("1000", "THOUSAND")
    (tmp_path / "shop_steps.py").write_text(f"from shop_helper import THOUSAND\n{steps}")
    (tmp_path / "shop_helper.py").write_text("THOUSAND = 1000\n")
    send(
        servers,
        "shop-visits",
        [
            click(1, "ann", 10 * MINUTE_MS, 4),
            click(1, "ann", 10 * MINUTE_MS, 4),  # a duplicate
            click(2, "bob", 11 * MINUTE_MS, 7),  # odd
            click(3, None, 12 * MINUTE_MS, 6),  # no user
            click(4, "cid", 13 * MINUTE_MS, -2),  # negative
            click(5, "dan", 14 * MINUTE_MS, 8),
            Sent(b"no JSON"),
        ],
    )
    buys = [{"user": "ann", "at_ms": 10 * MINUTE_MS + 1}, {"user": "dan", "at_ms": 16 * MINUTE_MS}]
    send(servers, "shop-orders", [Sent(json.dumps(buy).encode()) for buy in buys])
    written = write_pipeline(tmp_path, documented("shop.yaml"))
    totals = run_once(written, spark, broker)

    first = {"id": 1, "user": "ann", "at": "1970-01-01T00:10:00.000Z", "ms": 4}
    last = {"id": 5, "user": "dan", "at": "1970-01-01T00:14:00.000Z", "ms": 8}
    assert values_of(broker, "shop-rich") == [
        {**first, "s": 0.004, "double_s": 0.008},
        {**last, "s": 0.008, "double_s": 0.016},
    ]
    # Dan ordered two minutes later: too late for the join.
    assert values_of(broker, "shop-ordered") == [
        {"id": 1, "ordered_at": "1970-01-01T00:10:00.001Z"}
    ]
    violations = {"visits.has_user": 1, "visits.positive": 1, "rich.even": 1}
    assert totals["rich"].violations == violations
    assert totals["rich"].written == 2

    dead = {bytes(r.value or b""): dict(r.headers) for r in records_of(broker, "shop-visits-dead")}
    unknown = click(3, None, 12 * MINUTE_MS, 6).value
    assert unknown is not None
    assert set(dead) == {b"no JSON", unknown}
    reason = b"expectation has_user is not met: user IS NOT NULL"
    assert bytes(dead[unknown]["penstock.error"] or b"") == reason
    assert bytes(dead[unknown]["penstock.offset"] or b"") == b"3"
    (odd,) = records_of(broker, "shop-odd")
    assert json.loads(bytes(odd.value or b""))["id"] == 2
    assert bytes(dict(odd.headers)["penstock.view"] or b"") == b"rich"

    if not is_long():
        return
    # A duplicate of an earlier run is found, too.
    send(servers, "shop-visits", [click(1, "ann", 15 * MINUTE_MS, 4)])
    assert run_once(written, spark, broker)["rich"].written == 0


FAILS = """
sources:
  clicks:
    topic: {topic}
    value: {format: json, schema: "id BIGINT, ms INT"}
    expect: {positive: ms >= 0}
sinks:
  counted: {query: SELECT count(*) FROM clicks, format: noop, mode: complete}
"""


def test_expectation_that_fails_names_the_row(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    send(broker.bootstrap_servers, topic_name, [Sent(b'{"id": 1, "ms": 0}'), Sent(b'{"id": 2}')])
    written = write_pipeline(tmp_path, FAILS, {"topic": topic_name})
    with pytest.raises(QueryFailed) as failure:
        run_once(written, spark, broker)
    message = str(failure.value)
    assert message.startswith(
        "p.yaml:9: counted: expectation positive is not met: ms >= 0, in source clicks, by the "
        'row {"id":2,'
    )
    assert message.endswith("`otherwise: drop` or `otherwise: dead_letter`")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("visits.sql", marks=pytest.mark.skipif(not is_long(), reason="as visits.py")),
        "visits.py",
    ],
)
def test_the_documented_statements_and_python_run(
    spark: SparkSession, broker: penstock.Broker, tmp_path: Path, topic_name: str, name: str
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    create_topic(servers, f"{topic_name}.out")
    visits = [click(1, "ann", 1000, 4000), click(1, "ann", 1000, 4000), click(2, "bob", 1000, -1)]
    send(servers, topic_name, [*visits, click(3, "cid", 2000, 500)])
    (tmp_path / "shop_steps.py").write_text(documented("shop_steps.py"))
    text = documented(name).replace("shop-visits", topic_name).replace("./tables", str(tmp_path))
    text = text.replace("shop-timed", f"{topic_name}.out")
    if name.endswith(".sql"):
        text = f"SET checkpoints = '{tmp_path}/checkpoints';\n{text}"
    else:
        text = text.replace("= declare(", f"= declare(checkpoints='{tmp_path}/checkpoints',")
    (tmp_path / name).write_text(text)
    totals = run_file(tmp_path / name, spark, broker)
    assert values_of(broker, f"{topic_name}.out") == [
        {"id": 1, "user": "ann", "at": "1970-01-01T00:00:01.000Z", "s": 4.0},
        {"id": 3, "user": "cid", "at": "1970-01-01T00:00:02.000Z", "s": 0.5},
    ]
    assert [row.id for row in spark.read.parquet(f"{tmp_path}/slow").collect()] == [1]
    assert totals["timed"].violations == {"visits.positive": 1}
