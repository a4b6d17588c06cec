"""Fixtures of the interop tests: Kafka's jars, and logs a real broker wrote; once per session."""

from __future__ import annotations

import sys

import pytest
from tests.interop.kafka_corpus import Corpus, write_corpus
from tests.interop.kafka_jars import KafkaJars, KafkaUnavailableError, resolve_kafka_jars


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all that needs Kafka: jars, broker and corpus exist once."""
    for item in items:
        if "/interop/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("kafka"))


@pytest.fixture(scope="session")
def kafka_jars(request: pytest.FixtureRequest) -> KafkaJars:
    """Kafka's class path, or a skip that says what is missing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, file=sys.stderr, flush=True)

    try:
        return resolve_kafka_jars(say)
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")


@pytest.fixture(scope="session")
def kafka_corpus(kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A Kafka data directory, stopped cleanly and killed; read only."""
    return write_corpus(kafka_jars, tmp_path_factory.mktemp("kafka"))
