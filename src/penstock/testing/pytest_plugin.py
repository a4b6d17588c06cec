"""Fixtures for tests of programs that use Kafka: a broker per session, a topic per test.

pytest finds it through its entry point; nothing is imported or started before a test needs it.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.embedded_broker import Broker

_numbers = count(1)


@pytest.fixture(scope="session")
def penstock_broker() -> "Iterator[Broker]":
    """A broker that runs until the session ends."""
    from penstock.testing.embedded_broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def penstock_topic(penstock_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, created for this test."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:200]
    topic = f"{name}-{next(_numbers)}"
    penstock_broker.create_topic(topic)
    return topic
