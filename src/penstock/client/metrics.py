"""Asks brokers for their metrics: one private request to each (docs/inter_broker.md).

Only Penstock's brokers answer it; others close the connection.
"""

from typing import NamedTuple

from penstock.client.call import PrivateCall
from penstock.client.errors import RefusedByBroker
from penstock.client.router import Router
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.describe_metrics import (
    DESCRIBE_METRICS_VERSIONS,
    DescribeMetricsRequest,
    encode_describe_metrics,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse

MAX_BYTES = 16 << 20


class DescribedMetrics(NamedTuple):
    text: str  # Prometheus' text format, with jmx_exporter's names
    is_truncated: bool  # there was more than fits


class MetricsClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self,
        broker_id: BrokerId,
        names: tuple[str, ...] = (),
        *,
        max_bytes: int = MAX_BYTES,
        timeout_ms: int | None = None,
    ) -> DescribedMetrics:
        """The metrics whose names begin with one of `names`, or all. One attempt."""
        version = DESCRIBE_METRICS_VERSIONS[-1]
        body = encode_describe_metrics(DescribeMetricsRequest(names, max_bytes))
        call = PrivateCall(PrivateKey.DESCRIBE_METRICS, version, body)
        response = await self._router.ask_broker(broker_id, call, self._router.deadline(timeout_ms))
        assert isinstance(response, PrivateResponse)
        if response.code is not ErrorCode.NONE:
            raise RefusedByBroker(f"metrics of broker {broker_id}", response.code, response.message)
        return DescribedMetrics(response.payload.decode(), response.is_truncated)
