"""DescribeMetrics (private key 31006), version 0: the request body, to bytes and back.

In `protocol` because the client sends it; the response is `private_response` with a payload.
"""

from typing import NamedTuple

from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.request_budget import RequestBudget

DESCRIBE_METRICS_VERSIONS = range(1)


class DescribeMetricsRequest(NamedTuple):
    names: tuple[str, ...]  # beginnings of names of metric families; none: all families
    max_bytes: int  # of the text; the broker has a limit of its own, too


def encode_describe_metrics(request: DescribeMetricsRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.array(request.names, ValueWriter.string)
    writer.int32(request.max_bytes)
    writer.tags()
    return writer.done()


def decode_describe_metrics(
    body: Buffer, budget: RequestBudget | None = None
) -> DescribeMetricsRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = DescribeMetricsRequest(tuple(reader.array(ValueReader.string)), reader.int32())
    reader.tags()
    reader.end()
    return request
