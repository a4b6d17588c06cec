"""Metric families: name, type, help and samples, before they become text.

Labels are text already, because most series share theirs with others: those of 10,000 partitions
are written once a scrape and not once a series.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple


class Dialect(Enum):
    """Whose names Kafka's metrics get; docs/metrics.md compares them."""

    A = "A"  # jmx_exporter's example rules, Strimzi
    B = "B"  # Confluent, Grafana Cloud
    D = "D"  # Strimzi Metrics Reporter


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Naming(Enum):
    """How the dialects form a name."""

    PLAIN = 0  # the same in all
    METER = 1  # Kafka's "...PerSec"
    PERCENT = 2  # Kafka's "...Percent"


_SUFFIXES = {
    Naming.PLAIN: dict.fromkeys(Dialect, ""),
    Naming.METER: {Dialect.A: "_total", Dialect.B: "persec", Dialect.D: "persec_total"},
    Naming.PERCENT: {Dialect.A: "_percent", Dialect.B: "percent", Dialect.D: "percent"},
}

Number = int | float
Sample = tuple[str, Number]  # the rest of the name with the labels, and the value


class Family(NamedTuple):
    name: str
    kind: MetricKind
    help: str
    samples: Iterable[Sample]
    naming: Naming = Naming.PLAIN

    def full_name(self, dialect: Dialect) -> str:
        return self.name + _SUFFIXES[self.naming][dialect]


def gauge(name: str, help_text: str, value: Number) -> Family:
    return Family(name, MetricKind.GAUGE, help_text, [("", value)])


def counter(name: str, help_text: str, value: Number) -> Family:
    return Family(name, MetricKind.COUNTER, help_text, [("", value)])


def meter(name: str, help_text: str, samples: Sequence[Sample]) -> Family:
    """A counter that Kafka calls "...PerSec"."""
    return Family(name, MetricKind.COUNTER, help_text, samples, Naming.METER)


def labels(**values: object) -> str:
    return "{" + ",".join(f'{name}="{escape(str(text))}"' for name, text in values.items()) + "}"


def escape(text: str) -> str:
    """As the text format wants it; most labels have nothing to escape."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text
