"""Fixtures of the interop tests, once per session: Kafka's jars, and logs that a real broker
wrote."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys

import pytest
from tests.interop.kafka_corpus import Corpus, write_corpus
from tests.interop.kafka_jars import KafkaJars, KafkaUnavailableError, resolve_kafka_jars
from tests.profile import is_long


@pytest.fixture(scope="session")
def kafka_jars(request: pytest.FixtureRequest) -> KafkaJars:
    """Kafka's class path, or a skip with the reason."""
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
    """A Kafka data directory, stopped cleanly and killed; read only. In the long forms only: a
    Kafka broker writes it for a minute. The short form has Kafka read our files.

    Written once per run even if several workers need it: pytest 9.2 made xdist's groups ineffective
    (pytest-xdist issue 1386), so the mark alone does not keep the tests on one worker.
    """
    if not is_long():
        pytest.skip("a Kafka broker writes its files for a minute: `make verify`")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    cached = shared / "kafka-corpus.pickle"
    with (shared / "kafka-corpus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cached.exists():
            corpus = write_corpus(kafka_jars, tmp_path_factory.mktemp("kafka"))
            cached.write_bytes(pickle.dumps(corpus))
        corpus = pickle.loads(cached.read_bytes())
    assert isinstance(corpus, Corpus)
    return corpus
