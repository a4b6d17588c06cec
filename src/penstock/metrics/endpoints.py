"""The paths of the metrics listener: metrics for Prometheus, health for orchestrators.

`/v1/ready` and `/v1/broker-state` answer as Strimzi's agent does.
"""

import asyncio
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from penstock.metrics.broker_state import BrokerState
from penstock.metrics.exposition import CONTENT_TYPE
from penstock.metrics.families import Dialect
from penstock.metrics.http_server import JSON, HttpRequest, HttpResponse
from penstock.metrics.scrape import Scraper

LIVE_S = 1.0  # a loop that takes longer to come round is not live
_PATHS = "/metrics, /live, /ready, /v1/broker-state and /v1/ready"


class Health(NamedTuple):
    state: BrokerState
    not_ready: str | None  # why the broker is not ready; None: it is
    remaining_logs: int  # to recover


class Endpoints:
    """`respond` is the metrics listener's. The scraper is absent until the broker is built."""

    def __init__(self, health: Callable[[], Health], dialect: Dialect) -> None:
        self._health = health
        self._dialect = dialect
        self.scraper: Scraper | None = None

    async def respond(self, request: HttpRequest) -> HttpResponse:
        path = request.path
        if path == "/metrics":
            return self._metrics(request)
        if path == "/live":
            return await _live()
        if path == "/ready":
            return self._ready()
        if path == "/v1/ready":
            is_ready = self._health().not_ready is None
            status = HTTPStatus.NO_CONTENT if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
            return HttpResponse(status)
        if path == "/v1/broker-state":
            return HttpResponse(body=self._broker_state(), content_type=JSON)
        return HttpResponse(HTTPStatus.NOT_FOUND, f"here are {_PATHS}\n".encode())

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        chosen = request.query.get("dialect", self._dialect.value).upper()
        if chosen not in Dialect.__members__:
            text = f"dialect {chosen[:20]!r} is not one of {', '.join(Dialect.__members__)}\n"
            return HttpResponse(HTTPStatus.BAD_REQUEST, text.encode())
        if self.scraper is None:
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"the broker is starting\n")
        body = self.scraper.scrape(Dialect[chosen])
        return HttpResponse(body=body, content_type=CONTENT_TYPE)

    def _ready(self) -> HttpResponse:
        health = self._health()
        if health.not_ready is None:
            return HttpResponse(body=b"ready\n")
        text = f"not ready: {health.not_ready}\n"
        return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())

    def _broker_state(self) -> bytes:
        health = self._health()
        document: dict[str, object] = {"brokerState": int(health.state)}
        if health.state is BrokerState.RECOVERY:
            document["recoveryState"] = {
                "remainingLogsToRecover": health.remaining_logs,
                "remainingSegmentsToRecover": health.remaining_logs,
            }
        return json.dumps(document).encode() + b"\n"


async def _live() -> HttpResponse:
    began_s = time.monotonic()
    await asyncio.sleep(0)  # once through all that is due
    elapsed_s = time.monotonic() - began_s
    if elapsed_s <= LIVE_S:
        return HttpResponse(body=b"live\n")
    text = f"not live: the event loop took {elapsed_s:.1f} s\n"
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
