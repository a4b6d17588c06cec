"""Apache Kafka's own jars, resolved once with Maven into `.cache/kafka/<version>/`.

A test dependency only: the product never needs Java. Invariant: a cache directory that carries the
stamp is complete; it is filled beside its place and renamed into it.
`python -m tests.interop.kafka_jars` fills it ahead of a test run and prints the progress.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
RESOLVE_TIMEOUT_S = 300
INSTALL_HINT = (
    "install a JDK of version 17 or newer and Maven "
    "(Debian: apt-get install openjdk-17-jdk-headless maven)"
)

JAVA_SOURCES = Path(__file__).parent / "java"
CACHE_ROOT = Path(__file__).parents[2] / ".cache" / "kafka"
RESOLVER = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

# Connect's web server and its dependencies: half of the jars, needed by none of the tools we run.
_EXCLUSIONS = "".join(
    f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
    for group, artifact in (("org.apache.kafka", "connect-runtime"), ("org.eclipse.jetty", "*"))
)

Say = Callable[[str], None]


class KafkaUnavailableError(Exception):
    """Kafka's jars are not available; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJars:
    """A class path that runs a broker, its tools and our driver."""

    version: str
    jars: Path
    classes: Path  # our own compiled driver, and the logging set-up
    java: str
    archive: Path  # Kafka's loaded classes, archived by the first broker: halves every later start

    def command(self, main_class: str, *arguments: str, heap_mib: int = 256) -> list[str]:
        """The command line for one Java class in a small JVM that starts quickly."""
        sharing = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        return self._command(
            [*sharing, f"-Xmx{heap_mib}m"],
            f"{self.jars}/*{os.pathsep}{self.classes}",
            main_class,
            arguments,
        )

    def archiving_command(self, main_class: str, *arguments: str, heap_mib: int) -> list[str]:
        """The same command, which also archives the loaded classes on exit; the JVM can archive
        only jars."""
        options = [f"-XX:ArchiveClassesAtExit={self._fresh_archive}", f"-Xmx{heap_mib}m"]
        return self._command(options, f"{self.jars}/*", main_class, arguments)

    def keep_archive(self) -> None:
        """Moves the archive of such a command into place, if it was written."""
        if self._fresh_archive.exists():
            self._fresh_archive.rename(self.archive)

    @property
    def _fresh_archive(self) -> Path:
        return self.archive.with_suffix(f".{os.getpid()}")

    def _command(
        self, options: list[str], class_path: str, main_class: str, arguments: Sequence[str]
    ) -> list[str]:
        return [
            self.java,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            *options,
            f"-Dlog4j2.configurationFile={self.classes / 'log4j2.properties'}",
            "-cp",
            class_path,
            main_class,
            *arguments,
        ]


def resolve_kafka_jars(say: Say, *, cache_root: Path = CACHE_ROOT) -> KafkaJars:
    """Return the class path, downloading it on the first call on this machine."""
    java, javac, maven = (get_program(name) for name in ("java", "javac", "mvn"))
    home = cache_root / KAFKA_VERSION
    cache_root.mkdir(parents=True, exist_ok=True)
    with locked(cache_root / ".lock"):
        jars = _get_jars(home, maven, say)
        classes = _get_classes(home, jars, javac)
    archive = home / f"{jars.name}-{_identity(java)}.jsa"
    return KafkaJars(version=KAFKA_VERSION, jars=jars, classes=classes, java=java, archive=archive)


def get_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KafkaUnavailableError(f"`{name}` is not on the path; {INSTALL_HINT}")
    return path


def _get_jars(home: Path, maven: str, say: Say) -> Path:
    pom = _pom_text()
    jars = home / f"jars-{short_hash(pom)}"
    if not jars.is_dir():
        say(f"Apache Kafka {KAFKA_VERSION}: fetching jars with Maven, once (about 50 MB) ...")
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(pom)
        with filled_then_renamed(jars) as target:
            _run_maven(maven, home / "pom.xml", target)
        say(f"Apache Kafka {KAFKA_VERSION}: {len(list(jars.iterdir()))} jars in {jars}")
    return jars


def _run_maven(maven: str, pom: Path, target: Path) -> None:
    command = [maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums"]
    command += ["--file", str(pom), RESOLVER, f"-DoutputDirectory={target}"]
    output = run_tool(command, "Maven did not answer", timeout_s=RESOLVE_TIMEOUT_S)
    if not any(target.glob("kafka_2.13-*.jar")):
        raise KafkaUnavailableError(f"Maven answered but copied no broker jar: {output[-400:]}")


def _get_classes(home: Path, jars: Path, javac: str) -> Path:
    sources = sorted(JAVA_SOURCES.iterdir())
    classes = home / f"classes-{short_hash(*(path.read_text() for path in sources))}"
    if not classes.is_dir():
        with filled_then_renamed(classes) as target:
            java_files = [str(path) for path in sources if path.suffix == ".java"]
            options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", f"{jars}/*", "-d", str(target)]
            complaint = "the Java driver does not compile"
            run_tool([javac, *options, *java_files], complaint, timeout_s=300)
            shutil.copy(JAVA_SOURCES / "log4j2.properties", target)
    return classes


def run_tool(command: Sequence[str], complaint: str, *, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(f"{complaint}: nothing after {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise KafkaUnavailableError(f"{complaint}: {_first_error(done.stdout)}")
    return done.stdout


def _first_error(output: str) -> str:
    lines = output.splitlines()
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return " ".join(errors[:2])[:600]


@contextmanager
def filled_then_renamed(target: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as scratch:
        filling = Path(scratch) / "filling"
        filling.mkdir()
        yield filling
        filling.rename(target)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _identity(java: str) -> str:
    """The JVM's version: another JVM cannot use the archive."""
    real = Path(java).resolve()
    return short_hash(str(real), str(real.stat().st_mtime_ns))


def short_hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _pom_text() -> str:
    dependencies = "".join(
        _dependency(group, artifact, version)
        for group, artifact, version in (
            ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
            ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
            ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
        )
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">'
        "<modelVersion>4.0.0</modelVersion><groupId>penstock</groupId>"
        "<artifactId>kafka-for-tests</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def _dependency(group: str, artifact: str, version: str) -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><exclusions>{_EXCLUSIONS}</exclusions></dependency>"
    )


if __name__ == "__main__":
    try:
        print(resolve_kafka_jars(lambda text: print(text, file=sys.stderr, flush=True)).jars)
    except KafkaUnavailableError as error:
        sys.exit(f"skipped: {error}")
