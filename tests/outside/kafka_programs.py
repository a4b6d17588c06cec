"""Kafka's tools, Streams, Connect and MirrorMaker 2, resolved once with Maven into `.cache/kafka/`.

`tests.interop.kafka_jars` has the broker without Connect; here is the rest. Invariant: an existing
cache directory is complete.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.interop.kafka_jars import (
    CACHE_ROOT,
    JAVA_SOURCES,
    KAFKA_VERSION,
    LOG4J_VERSION,
    RESOLVE_TIMEOUT_S,
    RESOLVER,
    KafkaJars,
    KafkaUnavailableError,
    Say,
    filled_then_renamed,
    get_program,
    locked,
    run_tool,
    short_hash,
)
from tests.outside.packages import HERE, ProgramDoesNotBuild

WORD_COUNT = HERE / "java" / "WordCount.java"
_ARTIFACTS = (
    "kafka_2.13",
    "kafka-tools",
    "kafka-streams",
    "connect-runtime",
    "connect-json",
    "connect-file",
    "connect-mirror",
)


def resolve_kafka_programs(say: Say, *, cache_root: Path = CACHE_ROOT) -> KafkaJars:
    """The class path, downloaded on the first call on a machine."""
    java, javac, maven = (get_program(name) for name in ("java", "javac", "mvn"))
    home = cache_root / f"programs-{KAFKA_VERSION}"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        jars = _get_jars(home, maven, say)
        classes = _get_classes(home, jars, javac)
    archive = home / "no-archive.jsa"
    return KafkaJars(version=KAFKA_VERSION, jars=jars, classes=classes, java=java, archive=archive)


def _get_jars(home: Path, maven: str, say: Say) -> Path:
    pom = _pom_text()
    jars = home / f"jars-{short_hash(pom)}"
    if not jars.is_dir():
        say(f"Kafka's programs {KAFKA_VERSION}: fetching jars with Maven, once (about 130 MB) ...")
        (home / "pom.xml").write_text(pom)
        with filled_then_renamed(jars) as target:
            command = [maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums"]
            command += ["--file", str(home / "pom.xml"), RESOLVER, f"-DoutputDirectory={target}"]
            run_tool(command, "Maven did not answer", timeout_s=RESOLVE_TIMEOUT_S)
    return jars


def _get_classes(home: Path, jars: Path, javac: str) -> Path:
    logging = JAVA_SOURCES / "log4j2.properties"
    classes = home / f"classes-{short_hash(WORD_COUNT.read_text(), logging.read_text(), jars.name)}"
    if not classes.is_dir():
        with filled_then_renamed(classes) as target:
            options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", f"{jars}/*", "-d", str(target)]
            try:
                run_tool([javac, *options, str(WORD_COUNT)], "no classes", timeout_s=300)
            except KafkaUnavailableError as error:
                raise ProgramDoesNotBuild(f"{WORD_COUNT.name} does not compile: {error}") from error
            shutil.copy(logging, target)
    return classes


def _pom_text() -> str:
    dependencies = "".join(
        _dependency("org.apache.kafka", name, KAFKA_VERSION) for name in _ARTIFACTS
    )
    dependencies += _dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">'
        "<modelVersion>4.0.0</modelVersion><groupId>penstock</groupId>"
        "<artifactId>kafka-programs-for-tests</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


def _dependency(group: str, artifact: str, version: str) -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
    )
