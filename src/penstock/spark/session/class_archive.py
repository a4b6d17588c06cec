"""An archive of the classes that Spark loads as it starts: Java maps it instead of reading jars.

Half of what a Spark on this machine costs before its first row is the loading of some 12,000
classes. Java can keep them (class data sharing), for one set of jars and one Java. The archive lies
beside the packages it is of, where that folder can be written to, else in the user's cache; a
session of ours uses the one it finds. Java itself refuses one that does not fit, and starts as it
would without. Invariant: an archive under its own name is whole.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from penstock.config.java import JavaHome, find_java
from penstock.spark.session.worker_python import find_pyspark_folder

_TIMEOUT_S = 600.0
# What Java takes for its Spark from the environment, before its own options.
_OPTIONS_OF_SPARK = "SPARK_SUBMIT_OPTS"
# An archive that does not fit is no news: -Xshare:auto is Java's default.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


class ArchiveFailed(Exception):
    """The message says why; the log of the attempt is named in it."""


def find_archive(java: JavaHome) -> Path | None:
    """The archive for this PySpark on this Java, if somebody has made it."""
    name = _name(java)
    return next((place for folder in _folders() if (place := folder / name).exists()), None)


def options_of(archive: Path) -> str:
    """For Java's command line."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def use_archive(java: JavaHome) -> None:
    """Sparks that this process and its children start use the archive, if there is one. Who has
    said something about archives in SPARK_SUBMIT_OPTS is left alone."""
    archive, said = find_archive(java), os.environ.get(_OPTIONS_OF_SPARK, "")
    if archive is not None and "Archive" not in said and " " not in str(archive):
        os.environ[_OPTIONS_OF_SPARK] = f"{options_of(archive)} {said}".strip()


def make_archive(bootstrap: str, topic: str, note: Callable[[str], None]) -> Path:
    """Run a Spark through what pipelines do, on a topic with some records, and keep its classes."""
    java = find_java()
    folder = next(folder for folder in _folders() if _is_writable(folder))
    with tempfile.TemporaryDirectory(dir=folder, prefix="training-") as home:
        fresh = Path(home) / "classes.jsa"
        _train(java, fresh, [bootstrap, topic, home], note)
        place = folder / _name(java)
        fresh.replace(place)
    return place


def _train(java: JavaHome, fresh: Path, arguments: list[str], note: Callable[[str], None]) -> None:
    note(f"running Spark once with {java.home}, to see what it loads; this takes a minute")
    environment = {
        **os.environ,
        "JAVA_HOME": java.home,
        _OPTIONS_OF_SPARK: f"-XX:ArchiveClassesAtExit={fresh} -Xlog:cds=off -Xlog:cds+dynamic=off",
    }
    command = [sys.executable, "-m", "penstock.spark.session.archive_training", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode or not fresh.exists():
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise ArchiveFailed(f"Spark ended with {done.returncode} and left no archive: {last}")


def _name(java: JavaHome) -> str:
    """Another PySpark, or another Java, has another archive."""
    jars = sorted((find_pyspark_folder() / "pyspark" / "jars").iterdir())
    told = "\n".join([os.path.realpath(java.home), *map(str, jars)])
    return f"spark-classes-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def _folders() -> tuple[Path, Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(sys.prefix) / "var" / "penstock", Path(cache).expanduser() / "penstock"


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
