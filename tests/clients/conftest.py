"""Fixtures of the client tests: one broker per worker, shared by all clients that run there."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.clients.scenarios")

from tests.clients.scenarios import COMBINATIONS, Client, Written, write_topic  # noqa: E402
from tests.clients.under_test import BrokerUnderTest, broker_under_test  # noqa: E402
from tests.interop.kafka_jars import KafkaUnavailableError, Say  # noqa: E402


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Prints what takes long, bypassing pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def speak(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, file=sys.stderr, flush=True)

    return speak


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[BrokerUnderTest]:
    """The broker under test. Every test has its own topics, so that they can share it."""
    try:
        with broker_under_test(tmp_path_factory.mktemp("broker"), say) as broker:
            yield broker
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")


@pytest.fixture(
    scope="module",
    params=COMBINATIONS,
    ids=[f"{codec.name.lower()}-acks-{acks}" for codec, acks in COMBINATIONS],
)
def written(request: pytest.FixtureRequest, client: Client, broker: BrokerUnderTest) -> Written:
    """What the module's client has written, with each codec and each acks."""
    codec, acks = request.param
    return write_topic(client, broker, codec, acks)
