"""DescribeMetrics (private key 31006), version 0: this broker's metrics as text, for clients.

Served on every listener to principals with DESCRIBE on the cluster, so that commands and consoles
need no metrics listener. The text is the scrape's, in dialect A, cut after a whole line at the
limit of the request or at MAX_BYTES. One response is built at a time, in turns with other work.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.private_responses import respond_payload, respond_refusal, respond_unsupported
from penstock.metrics.families import Dialect
from penstock.metrics.scrape import Scraper
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.describe_metrics import (
    DESCRIBE_METRICS_VERSIONS,
    DescribeMetricsRequest,
    decode_describe_metrics,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_BYTES = 16 << 20  # all series of 10,000 partitions are 11 MB
MAX_NAMES = 1_000


class MetricsText(NamedTuple):
    chunks: list[bytes]
    is_truncated: bool


def make_api(get_scraper: Callable[[], Scraper]) -> Api:
    turn = asyncio.Lock()

    async def describe(message: DescribeMetricsRequest) -> list[Any]:
        async with turn:
            text = await read_metrics(get_scraper(), message)
        return respond_payload(
            text.chunks, DESCRIBE_METRICS_VERSIONS, is_truncated=text.is_truncated
        )

    def answer(request: Request, services: "Services") -> Any:
        if not allows_cluster(request, services, AclOperation.DESCRIBE):
            request.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            message = f"{request.caller.principal} needs DESCRIBE on the cluster"
            return _refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
        if len(request.message.names) > MAX_NAMES:
            return _refuse(ErrorCode.INVALID_REQUEST, f"at most {MAX_NAMES} names")
        return describe(request.message)

    return Api(
        key=PrivateKey.DESCRIBE_METRICS,
        versions=DESCRIBE_METRICS_VERSIONS,
        answer=answer,
        read=_read,
        unsupported=respond_unsupported(DESCRIBE_METRICS_VERSIONS),
    )


async def read_metrics(scraper: Scraper, request: DescribeMetricsRequest) -> MetricsText:
    """Whole lines, and no more than the limit."""
    limit = min(request.max_bytes, MAX_BYTES)
    chunks: list[bytes] = []
    size = 0
    async for chunk in scraper.scrape(Dialect.A, request.names):
        if size + len(chunk) > limit:
            chunks.append(chunk[: chunk.rfind(b"\n", 0, max(0, limit - size)) + 1])
            return MetricsText(chunks, is_truncated=True)
        chunks.append(chunk)
        size += len(chunk)
    return MetricsText(chunks, is_truncated=False)


def _refuse(code: ErrorCode, message: str) -> bytes:
    return respond_refusal(Refusal(code, message), DESCRIBE_METRICS_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> DescribeMetricsRequest:
    return decode_describe_metrics(body, budget)
