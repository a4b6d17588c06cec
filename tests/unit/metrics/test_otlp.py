"""OTLP requests: what becomes of each kind of metric, and how many points one has."""

import pytest

pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="needs the extra otlp")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Metric,
)

from penstock.metrics.families import Dialect, Family, MetricKind, gauge, labels, meter
from penstock.metrics.otlp import POINTS, Times, encode_requests, read_labels

TIMES = Times(5, 9)


def decode(*families: Family) -> list[dict[str, Metric]]:
    """The metrics of each request, by name."""
    requests = [
        ExportMetricsServiceRequest.FromString(body)
        for body in encode_requests(families, Dialect.A, {"service.name": "penstock"}, TIMES)
    ]
    return [
        {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
        for request in requests
    ]


def as_dict(attributes: list[KeyValue]) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def test_a_counter_is_a_cumulative_sum_since_the_start() -> None:
    (metrics,) = decode(meter("in", "In.", [("", 7)]))
    metric = metrics["in_total"]
    assert metric.description == "In."
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = metric.sum.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (7, 5, 9)


def test_a_gauge_keeps_its_value_and_labels() -> None:
    text = labels(topic='a"b\\c', partition=3)
    (metrics,) = decode(Family("size", MetricKind.GAUGE, "Size.", [(text, 0.5)]))
    (point,) = metrics["size"].gauge.data_points
    assert point.as_double == 0.5
    assert as_dict(list(point.attributes)) == {"topic": 'a"b\\c', "partition": "3"}


def test_a_summary_is_a_gauge_of_quantiles_and_a_counter() -> None:
    samples = [('{request="Fetch",quantile="0.99"}', 2.5), ('_count{request="Fetch"}', 4)]
    (metrics,) = decode(Family("time", MetricKind.SUMMARY, "Time.", samples))
    (quantile,) = metrics["time"].gauge.data_points
    assert as_dict(list(quantile.attributes)) == {"request": "Fetch", "quantile": "0.99"}
    (count,) = metrics["time_count"].sum.data_points
    assert (quantile.as_double, count.as_int) == (2.5, 4)


def test_a_histogram_has_counts_by_bucket() -> None:
    samples = [
        ('_bucket{api="a",le="0.1"}', 2),
        ('_bucket{api="a",le="1"}', 5),
        ('_bucket{api="a",le="+Inf"}', 6),
        ('_sum{api="a"}', 3.5),
        ('_count{api="a"}', 6),
    ]
    (metrics,) = decode(Family("duration", MetricKind.HISTOGRAM, "Duration.", samples))
    (point,) = metrics["duration"].histogram.data_points
    assert list(point.explicit_bounds) == [0.1, 1.0]
    assert list(point.bucket_counts) == [2, 3, 1]
    assert (point.sum, point.count) == (3.5, 6)
    assert as_dict(list(point.attributes)) == {"api": "a"}


def test_many_points_are_split_among_requests() -> None:
    samples = [(labels(partition=number), number) for number in range(2 * POINTS + 1)]
    requests = decode(gauge("first", "First.", 1), Family("x", MetricKind.GAUGE, "X.", samples))
    points = [
        [len(metric.gauge.data_points) for metric in metrics.values()] for metrics in requests
    ]
    assert points == [[1], [POINTS], [POINTS], [1]]


def test_escaped_labels_are_read_back() -> None:
    assert read_labels(labels(a="x\ny", b='q"', c="\\n")) == [
        ("a", "x\ny"),
        ("b", 'q"'),
        ("c", "\\n"),
    ]
