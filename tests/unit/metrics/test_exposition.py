"""The text format: names in three dialects, labels, and families that stay together."""

from collections.abc import Iterator
from time import perf_counter

import pytest

from penstock.metrics.exposition import CHUNK_LINES, CHUNK_S, render
from penstock.metrics.families import Dialect, Family, MetricKind, Naming, gauge, labels, meter


def text_of(*families: Family, dialect: Dialect = Dialect.A) -> str:
    return b"".join(render(families, dialect)).decode()


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        (Dialect.A, "kafka_server_brokertopicmetrics_bytesin_total"),
        (Dialect.B, "kafka_server_brokertopicmetrics_bytesinpersec"),
        (Dialect.D, "kafka_server_brokertopicmetrics_bytesinpersec_total"),
    ],
)
def test_a_meter_is_named_as_the_dialect_names_it(dialect: Dialect, name: str) -> None:
    family = meter("kafka_server_brokertopicmetrics_bytesin", "Bytes.", [("", 7)])
    assert text_of(family, dialect=dialect) == (
        f"# HELP {name} Bytes.\n# TYPE {name} counter\n{name} 7\n"
    )


def test_a_percentage_has_an_underscore_in_dialect_a_only() -> None:
    family = Family("idle", MetricKind.GAUGE, "Idle.", [("", 0.5)], Naming.PERCENT)
    names = [family.full_name(dialect) for dialect in Dialect]
    assert names == ["idle_percent", "idlepercent", "idlepercent"]


def test_label_values_cannot_end_their_quotes_or_line() -> None:
    assert labels(group='a"b\\c\nd') == '{group="a\\"b\\\\c\\nd"}'


def test_large_families_come_in_chunks_and_stay_together() -> None:
    def make(name: str) -> Family:
        samples = ((labels(partition=number), number) for number in range(3 * CHUNK_LINES))
        return Family(name, MetricKind.GAUGE, "Help.", samples)

    chunks = list(render([make("one"), make("two")], Dialect.A))
    assert len(chunks) >= 6
    assert max(chunk.count(b"\n") for chunk in chunks) <= 2 * CHUNK_LINES + 2
    lines = b"".join(chunks).decode().splitlines()
    values = [line.partition("{")[0] for line in lines if not line.startswith("#")]
    assert values == ["one"] * 3 * CHUNK_LINES + ["two"] * 3 * CHUNK_LINES


def test_others_get_a_turn_while_unwanted_families_are_made() -> None:
    def make_slowly() -> Iterator[Family]:
        for number in range(5):
            end_s = perf_counter() + CHUNK_S
            while perf_counter() < end_s:
                pass
            yield gauge(f"family_{number}", "Help.", number)

    chunks = list(render(make_slowly(), Dialect.A, ["family_4"]))
    assert len(chunks) >= 5
    assert b"".join(chunks).endswith(b"\nfamily_4 4\n")
    assert b"family_3" not in b"".join(chunks)
