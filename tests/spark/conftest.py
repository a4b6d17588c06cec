"""Fixtures of the Spark tests: one Spark, one broker, and Spark's own connector to compare with.

Both formats run in one JVM. Tests that share it, and tests that start a Spark of their own, run in
two lines each, on workers of their own: in one line they would take longer than all the rest.
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
# Compaction comes soon, so that tests of compacted topics need not wait for it.
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": 100,
    "log.retention.ms": -1,  # records carry times of long ago
    "auto.create.topics.enable": "false",
}
KILLS = ("test_exactly_once", "test_kills")
_numbers = count(1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            names = getattr(item, "fixturenames", [])
            shares = "spark" in names
            item.add_marker(pytest.mark.xdist_group(_line_of(item.path.stem, shares=shares)))
            if "java" in names and not shares and is_long():
                names.insert(0, "prepared")  # takes a minute: it pays where many are started


def _line_of(file: str, *, shares: bool) -> str:
    if shares:
        return "spark-parity" if file.startswith("test_parity") else "spark"
    return "spark-kills" if file in KILLS else "spark-processes"


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Tells what takes long, past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def speak(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, file=sys.stderr, flush=True)

    return speak


@pytest.fixture(scope="session")
def java() -> JavaHome:
    """Without it there is no Spark."""
    try:
        return find_java()
    except JavaMissing as error:
        _give_up(str(error))


@pytest.fixture(scope="session")
def prepared(java: JavaHome) -> None:
    """Sparks that tests start in processes of their own start in half the time."""
    if find_archive(java) is None:
        command = [str(Path(sys.executable).with_name("penstock")), "pipeline", "prepare"]
        subprocess.run(command, check=True, timeout=600)


@pytest.fixture(scope="session")
def connector_jars(say: Say) -> Path | KafkaUnavailableError:
    """Where Spark's own connector is, or why it cannot be had."""
    try:
        return resolve_jvm_connector(say)
    except KafkaUnavailableError as error:
        return error


@pytest.fixture(scope="session")
def jvm_connector(connector_jars: Path | KafkaUnavailableError) -> Path:
    """For tests that compare with it."""
    if isinstance(connector_jars, KafkaUnavailableError):
        _give_up(str(connector_jars))
    return connector_jars


@pytest.fixture(scope="session")
def spark(
    java: JavaHome,
    connector_jars: Path | KafkaUnavailableError,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkSession]:
    """A local Spark of two cores with both connectors; its JVM ends with the session."""
    jars = connector_jars if isinstance(connector_jars, Path) else None
    extra = {"spark.driver.extraClassPath": class_path(jars)} if jars else {}
    with local_spark(tmp_path_factory.mktemp("spark"), extra) as session:
        yield session


@pytest.fixture(scope="session")
def broker() -> Iterator[penstock.Broker]:
    """The broker that all tests share; topics are their own."""
    with penstock.Broker(config=BROKER_CONFIG) as broker:
        yield broker


@pytest.fixture(scope="session")
def corpus(broker: penstock.Broker) -> Corpus:
    """Topics to read, not to change."""
    return write_corpus(broker.bootstrap_servers)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; nothing is created."""
    test = request.node.originalname.removeprefix("test_")[:60]
    return f"{test}-{next(_numbers)}"


def _give_up(reason: str) -> NoReturn:
    """Skip, but not where it must run."""
    if os.environ.get("CI"):
        pytest.fail(f"needed here: {reason}")
    pytest.skip(f"skipped: {reason}")
