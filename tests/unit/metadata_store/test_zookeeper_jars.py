"""ZooKeeper's jars: found without importing PySpark, or an error that says what to do."""

import sys
from pathlib import Path

import pytest

from penstock.metadata_store.errors import ZooKeeperMissing
from penstock.metadata_store.zookeeper import jars as zookeeper_jars
from penstock.metadata_store.zookeeper.jars import find_jars

NEEDED = (
    "zookeeper-3.9.5.jar",
    "zookeeper-jute-3.9.5.jar",
    "slf4j-api-2.0.17.jar",
    "netty-common-4.2.jar",
    "netty-handler-4.2.jar",
)


@pytest.fixture
def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_jars, "find_spec", lambda name: None)


def make_jars(folder: Path, *names: str) -> dict[str, str]:
    (folder / "jars").mkdir()
    for name in names:
        (folder / "jars" / name).touch()
    return {"SPARK_HOME": str(folder)}


@pytest.mark.usefixtures("without_pyspark")
def test_only_the_needed_jars_of_spark_home_are_used(tmp_path: Path) -> None:
    environment = make_jars(tmp_path, *NEEDED, "spark-core_2.13-4.3.0.jar", "log4j-api-2.24.jar")
    names = [Path(jar).name for jar in find_jars(environment)]
    assert names == sorted((*NEEDED, "log4j-api-2.24.jar"))


@pytest.mark.usefixtures("without_pyspark")
def test_a_folder_without_all_jars_is_ignored(tmp_path: Path) -> None:
    environment = make_jars(tmp_path, *NEEDED[1:])
    with pytest.raises(ZooKeeperMissing) as refused:
        find_jars(environment)
    assert str(tmp_path) in str(refused.value)
    assert "pip install 'penstock[cluster]'" in str(refused.value)


@pytest.mark.usefixtures("without_pyspark")
def test_without_pyspark_the_error_names_both_remedies() -> None:
    with pytest.raises(ZooKeeperMissing) as refused:
        find_jars({})
    assert "PySpark is not installed" in str(refused.value)
    assert "--zookeeper" in str(refused.value)


def test_pyspark_s_jars_are_found_without_importing_it() -> None:
    try:
        jars = find_jars({})
    except ZooKeeperMissing as missing:
        pytest.skip(str(missing))
    assert any(Path(jar).name.startswith("zookeeper-3.9.") for jar in jars)
    assert "pyspark" not in sys.modules or "pyspark.sql" in sys.modules  # imported by another test
