"""Fixtures of the Spark tests: one Spark, one broker, and Spark's own connector to compare with.

Both formats run in one JVM. The tests that share it form two xdist groups, and so do the tests that
start their own Spark, because a single group would take longer than all other tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

pytest.register_assert_rewrite("tests.spark.parity")

from tests.interop.kafka_jars import KafkaUnavailableError, Say  # noqa: E402
from tests.profile import is_long  # noqa: E402
from tests.spark.jvm_connector import class_path, resolve_jvm_connector  # noqa: E402
from tests.spark.local_spark import local_spark  # noqa: E402
from tests.spark.parity_corpus import Corpus, write_corpus  # noqa: E402

import penstock  # noqa: E402
from penstock.config.java import JavaHome, JavaMissing, find_java  # noqa: E402
from penstock.spark.session.class_archive import find_archive  # noqa: E402

HERE = Path(__file__).parent
# Frequent compaction, so that tests of compacted topics do not wait for it.
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": 100,
    "log.retention.ms": -1,  # records have old timestamps
    "auto.create.topics.enable": "false",
}
KILLS = ("test_exactly_once", "test_kills", "test_stops")
_numbers = count(1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            names = getattr(item, "fixturenames", [])
            shares = "spark" in names
            item.add_marker(pytest.mark.xdist_group(_group_of(item.path.stem, shares=shares)))
            if "java" in names and not shares and is_long():
                names.insert(0, "prepared")  # takes a minute, which pays off if many Sparks start


def _group_of(file: str, *, shares: bool) -> str:
    if shares:
        return "spark-parity" if file.startswith("test_parity") else "spark"
    return "spark-kills" if file in KILLS else "spark-processes"


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Prints what takes long, bypassing pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def speak(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, file=sys.stderr, flush=True)

    return speak


@pytest.fixture(scope="session")
def java() -> JavaHome:
    """Java, which Spark needs."""
    try:
        return find_java()
    except JavaMissing as error:
        _skip(str(error))


@pytest.fixture(scope="session")
def prepared(java: JavaHome) -> None:
    """The class archive, which halves the start-up of Spark processes in tests."""
    if find_archive(java) is None:
        command = [str(Path(sys.executable).with_name("penstock")), "pipeline", "prepare"]
        subprocess.run(command, check=True, timeout=600)


@pytest.fixture(scope="session")
def connector_jars(say: Say) -> Path | KafkaUnavailableError:
    """The jars of Spark's own connector, or why they are unavailable."""
    try:
        return resolve_jvm_connector(say)
    except KafkaUnavailableError as error:
        return error


@pytest.fixture(scope="session")
def jvm_connector(connector_jars: Path | KafkaUnavailableError) -> Path:
    """The same jars, for tests that must compare with the connector."""
    if isinstance(connector_jars, KafkaUnavailableError):
        _skip(str(connector_jars))
    return connector_jars


@pytest.fixture(scope="session")
def spark(
    java: JavaHome,
    connector_jars: Path | KafkaUnavailableError,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkSession]:
    """A local Spark with two cores and both connectors; its JVM ends with the session."""
    jars = connector_jars if isinstance(connector_jars, Path) else None
    extra = {"spark.driver.extraClassPath": class_path(jars)} if jars else {}
    with local_spark(tmp_path_factory.mktemp("spark"), extra) as session:
        yield session


@pytest.fixture(scope="session")
def broker() -> Iterator[penstock.Broker]:
    """The broker that all tests share; each uses its own topics."""
    with penstock.Broker(config=BROKER_CONFIG) as broker:
        yield broker


@pytest.fixture(scope="session")
def corpus(broker: penstock.Broker) -> Corpus:
    """Topics for reading only."""
    return write_corpus(broker.bootstrap_servers)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; nothing is created."""
    test = request.node.originalname.removeprefix("test_")[:60]
    return f"{test}-{next(_numbers)}"


def _skip(reason: str) -> NoReturn:
    """Skip, except on CI, where the test must run."""
    if os.environ.get("CI"):
        pytest.fail(f"needed here: {reason}")
    pytest.skip(f"skipped: {reason}")
