"""Metric families as requests of OpenTelemetry's protocol (OTLP), in protobuf.

The names are those of the scrape. Counters are cumulative, so a lost request costs one sample. The
quantiles of a summary become gauges, because OTLP's summaries need a sum. It runs on a thread, and
gives up the interpreter's lock after some points, so that the event loop is not held up.

Needs the extra `otlp`; nothing else imports it.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from time import sleep
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.metrics.families import Dialect, Family, MetricKind, Number, Sample

POINTS = 5_000  # of one request: about 700 KB
STEP = 200  # points between two releases of the interpreter's lock: about a millisecond
_LABEL = re.compile(r'([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_SUFFIX = re.compile(r"_(bucket|sum|count)")
_CUMULATIVE = AGGREGATION_TEMPORALITY_CUMULATIVE


class Times(NamedTuple):
    start_ns: int  # epoch; since when counters count
    now_ns: int


def encode_requests(
    families: Iterable[Family], dialect: Dialect, resource: dict[str, str], times: Times
) -> Iterator[bytes]:
    """Bodies of requests with at most POINTS points each; a metric may be in several."""
    attributes = _attributes(list(resource.items()))
    pending: list[Metric] = []
    points = 0
    for metric, count in _metrics(families, dialect, times):
        if points + count > POINTS and pending:
            yield _request(pending, attributes)
            pending, points = [], 0
        pending.append(metric)
        points += count
    if pending:
        yield _request(pending, attributes)


def _request(metrics: list[Metric], attributes: list[KeyValue]) -> bytes:
    scope = ScopeMetrics(metrics=metrics)
    scope.scope.name = "penstock"
    resource = Resource(attributes=attributes)
    request = ExportMetricsServiceRequest(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])]
    )
    data: bytes = request.SerializeToString()
    return data


def _metrics(
    families: Iterable[Family], dialect: Dialect, times: Times
) -> Iterator[tuple[Metric, int]]:
    """Metrics with at most POINTS points, and their number."""
    for family in families:
        name = family.full_name(dialect)
        if family.kind is MetricKind.HISTOGRAM:
            points = _histogram_points(family.samples, times)
            histogram = Histogram(data_points=points, aggregation_temporality=_CUMULATIVE)
            yield Metric(name=name, description=family.help, histogram=histogram), len(points)
            continue
        samples = iter(family.samples)
        while batch := list(islice(samples, POINTS)):
            yield from _number_metrics(family, name, batch, times)


def _number_metrics(
    family: Family, name: str, samples: list[Sample], times: Times
) -> Iterator[tuple[Metric, int]]:
    """A counter or a gauge; of a summary, a gauge of quantiles and a counter."""
    by_suffix: dict[str, list[Sample]] = {}
    for rest, value in samples:
        suffix, _, _ = rest.partition("{")
        by_suffix.setdefault(suffix, []).append((rest, value))
    for suffix, part in by_suffix.items():
        points = _points(part, times)
        metric = Metric(name=name + suffix, description=family.help)
        if family.kind is MetricKind.COUNTER or suffix:
            metric.sum.CopyFrom(
                Sum(data_points=points, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
            )
        else:
            metric.gauge.CopyFrom(Gauge(data_points=points))
        yield metric, len(points)


def _points(samples: list[Sample], times: Times) -> list[NumberDataPoint]:
    points = []
    for number, (rest, value) in enumerate(samples, 1):
        points.append(_point(rest, value, times))
        if number % STEP == 0:
            sleep(0)
    return points


def _point(rest: str, value: Number, times: Times) -> NumberDataPoint:
    point = NumberDataPoint(
        attributes=_attributes(read_labels(rest)),
        start_time_unix_nano=times.start_ns,
        time_unix_nano=times.now_ns,
    )
    if isinstance(value, float):
        point.as_double = value
    else:
        point.as_int = value
    return point


def _histogram_points(samples: Iterable[Sample], times: Times) -> list[HistogramDataPoint]:
    """One for each set of labels; the samples have cumulative buckets."""
    points: dict[tuple[tuple[str, str], ...], HistogramDataPoint] = {}
    below: dict[tuple[tuple[str, str], ...], Number] = {}
    for rest, value in samples:
        suffix = _SUFFIX.match(rest)
        assert suffix is not None, rest
        labels = read_labels(rest)
        key = tuple(label for label in labels if label[0] != "le")
        point = points.get(key)
        if point is None:
            point = points[key] = HistogramDataPoint(
                attributes=_attributes(list(key)),
                start_time_unix_nano=times.start_ns,
                time_unix_nano=times.now_ns,
            )
        if suffix[1] == "bucket":
            bound = dict(labels)["le"]
            if bound != "+Inf":
                point.explicit_bounds.append(float(bound))
            point.bucket_counts.append(int(value - below.get(key, 0)))
            below[key] = value
        elif suffix[1] == "sum":
            point.sum = value
        else:
            point.count = int(value)
    return list(points.values())


def read_labels(rest: str) -> list[tuple[str, str]]:
    return [(name, _ESCAPE.sub(_unescape, text)) for name, text in _LABEL.findall(rest)]


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _attributes(pairs: list[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=text)) for name, text in pairs]
