"""Kafka's Java client against the broker: the newest, and the last that also supported 0.10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from tests.clients.java_clients import VERSIONS, JavaClient, resolve_java_clients
from tests.clients.scenarios import ClientScenarios
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import KafkaUnavailableError, Say

pytestmark = pytest.mark.xdist_group("client-java")


@pytest.fixture(scope="module")
def started(
    broker: BrokerUnderTest, say: Say, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, JavaClient]]:
    """One JVM per version, for the whole module."""
    try:
        resolved = [resolve_java_clients(version, say) for version in VERSIONS]
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")
    logs = tmp_path_factory.mktemp("java")
    clients = {
        clients.version: JavaClient(
            clients, broker.bootstrap_servers, logs / f"{clients.version}.log"
        )
        for clients in resolved
    }
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture(scope="module", params=VERSIONS)
def client(request: pytest.FixtureRequest, started: Mapping[str, JavaClient]) -> JavaClient:
    return started[request.param]


class TestJavaClient(ClientScenarios):
    pass
