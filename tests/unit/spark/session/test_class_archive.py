"""The class archive that Spark starts with. tests/spark/test_session.py uses it in a JVM."""

import os
import sys
from pathlib import Path

import pytest

from penstock.config.java import JavaHome
from penstock.spark.session import class_archive
from penstock.spark.session.class_archive import (
    ArchiveFailed,
    find_archive,
    make_archive,
    use_archive,
)

JAVA = JavaHome("/opt/java-17", "/opt/java-17/bin/java", 17)
ANOTHER = JavaHome("/opt/java-21", "/opt/java-21/bin/java", 21)


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary sys.prefix and cache, so that the machine's own archives are not found."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return tmp_path / "prefix"


def write_archive(folder: Path, java: JavaHome) -> Path:
    archive = folder / class_archive._name(java)
    folder.mkdir(parents=True)
    archive.write_bytes(b"classes")
    return archive


@pytest.mark.parametrize("folder", ["prefix/var/penstock", "cache/penstock"])
def test_archive_is_found_next_to_the_packages_and_in_the_cache(
    tmp_path: Path, folder: str
) -> None:
    assert find_archive(JAVA) is None
    archive = write_archive(tmp_path / folder, JAVA)
    assert find_archive(JAVA) == archive


def test_another_java_needs_another_archive(prefix: Path) -> None:
    write_archive(prefix / "var" / "penstock", JAVA)
    assert find_archive(ANOTHER) is None


def test_spark_starts_with_an_existing_archive(prefix: Path) -> None:
    use_archive(JAVA)
    assert "SPARK_SUBMIT_OPTS" not in os.environ
    archive = write_archive(prefix / "var" / "penstock", JAVA)
    use_archive(JAVA)
    assert f"-XX:SharedArchiveFile={archive} " in os.environ["SPARK_SUBMIT_OPTS"]


def test_submit_options_of_the_user_are_kept(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_archive(prefix / "var" / "penstock", JAVA)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    use_archive(JAVA)
    assert os.environ["SPARK_SUBMIT_OPTS"].endswith(" -Dmine=1")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=mine.jsa")
    use_archive(JAVA)
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-XX:SharedArchiveFile=mine.jsa"


def test_failed_training_leaves_no_archive(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "find_java", lambda: JAVA)  # a Java that does not exist
    with pytest.raises(ArchiveFailed, match="left no archive: "):
        make_archive("127.0.0.1:1", "topic", lambda _: None)
    assert list((prefix / "var" / "penstock").iterdir()) == []
