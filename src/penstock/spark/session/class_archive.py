"""A class data sharing archive for Spark: the JVM maps it instead of loading classes from jars.

Loading some 12,000 classes is half of what a local Spark costs before its first row. An archive
fits one set of jars and one Java. It is stored next to the installed packages if that folder is
writable, else in the user's cache; our sessions use the first one they find. The JVM rejects an
archive that does not fit and starts without it. Invariant: an archive under its final name is
complete.
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
# The JVM options that Spark's scripts take from the environment.
_SUBMIT_OPTS = "SPARK_SUBMIT_OPTS"
# No warning about an archive that does not fit: -Xshare:auto is the JVM's default.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


class ArchiveFailed(Exception):
    """The training run failed; the message says why."""


def find_archive(java: JavaHome) -> Path | None:
    """The archive for this PySpark on this Java, if there is one."""
    name = _name(java)
    return next((path for folder in _folders() if (path := folder / name).exists()), None)


def jvm_options(archive: Path) -> str:
    """Options for the JVM's command line."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def use_archive(java: JavaHome) -> None:
    """Make Spark use the archive, if there is one, in this process and its children. Leaves
    SPARK_SUBMIT_OPTS alone if it already mentions an archive."""
    archive, options = find_archive(java), os.environ.get(_SUBMIT_OPTS, "")
    if archive is not None and "Archive" not in options and " " not in str(archive):
        os.environ[_SUBMIT_OPTS] = f"{jvm_options(archive)} {options}".strip()


def make_archive(bootstrap: str, topic: str, note: Callable[[str], None]) -> Path:
    """Train Spark on a topic with some records, and archive the classes it loads."""
    java = find_java()
    folder = next(folder for folder in _folders() if _is_writable(folder))
    with tempfile.TemporaryDirectory(dir=folder, prefix="training-") as home:
        fresh = Path(home) / "classes.jsa"
        _train(java, fresh, [bootstrap, topic, home], note)
        archive = folder / _name(java)
        fresh.replace(archive)
    return archive


def _train(java: JavaHome, fresh: Path, arguments: list[str], note: Callable[[str], None]) -> None:
    note(f"running Spark once with {java.home} to see which classes it loads; takes a minute")
    environment = {
        **os.environ,
        "JAVA_HOME": java.home,
        _SUBMIT_OPTS: f"-XX:ArchiveClassesAtExit={fresh} -Xlog:cds=off -Xlog:cds+dynamic=off",
    }
    command = [sys.executable, "-m", "penstock.spark.session.archive_training", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode or not fresh.exists():
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise ArchiveFailed(f"Spark exited with {done.returncode} and left no archive: {last}")


def _name(java: JavaHome) -> str:
    """Different for each PySpark and each Java."""
    jars = sorted((find_pyspark_folder() / "pyspark" / "jars").iterdir())
    identity = "\n".join([os.path.realpath(java.home), *map(str, jars)])
    return f"spark-classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"


def _folders() -> tuple[Path, Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(sys.prefix) / "var" / "penstock", Path(cache).expanduser() / "penstock"


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
