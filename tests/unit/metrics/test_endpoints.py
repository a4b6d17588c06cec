"""Paths and health."""

import asyncio
import json
from http import HTTPStatus

from penstock.metrics.broker_state import BrokerState
from penstock.metrics.endpoints import Endpoints, Health
from penstock.metrics.families import Dialect
from penstock.metrics.http_server import HttpRequest, HttpResponse

READY = Health(BrokerState.RUNNING, None, 0)
RECOVERING = Health(BrokerState.RECOVERY, "the broker is in state recovery", 12)
BEHIND = Health(BrokerState.RUNNING, "broker 1 is not registered", 0)


def ask(path: str, health: Health = READY, **query: str) -> HttpResponse:
    endpoints = Endpoints(lambda: health, Dialect.A)
    return asyncio.run(endpoints.respond(HttpRequest(path, query)))


def test_live_is_answered_by_a_loop_that_runs() -> None:
    assert ask("/live", RECOVERING).status is HTTPStatus.OK


def test_ready_says_why_not() -> None:
    assert ask("/ready").status is HTTPStatus.OK
    for health in (RECOVERING, BEHIND):
        response = ask("/ready", health)
        assert response.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert response.body == f"not ready: {health.not_ready}\n".encode()


def test_strimzis_paths_answer_as_its_agent_does() -> None:
    assert ask("/v1/ready").status is HTTPStatus.NO_CONTENT
    assert ask("/v1/ready", RECOVERING).status is HTTPStatus.SERVICE_UNAVAILABLE
    body = ask("/v1/broker-state").body
    assert isinstance(body, bytes)
    assert json.loads(body) == {"brokerState": 3}
    body = ask("/v1/broker-state", RECOVERING).body
    assert isinstance(body, bytes)
    recovery = json.loads(body)
    assert recovery["brokerState"] == 2
    assert recovery["recoveryState"]["remainingLogsToRecover"] == 12


def test_metrics_need_a_known_dialect_and_a_built_broker() -> None:
    assert ask("/metrics", dialect="Z").status is HTTPStatus.BAD_REQUEST
    assert ask("/metrics").status is HTTPStatus.SERVICE_UNAVAILABLE


def test_other_paths_are_not_found() -> None:
    assert ask("/").status is HTTPStatus.NOT_FOUND
