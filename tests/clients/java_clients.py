"""Kafka's Java clients of given versions, from Maven, and our driver for them.

Invariant: a cache directory that exists is complete. The broker's own jars are not needed here.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.scenarios import HEADERS, Headers, Message, Received, Start
from tests.interop.kafka_broker import Child
from tests.interop.kafka_jars import (
    CACHE_ROOT,
    RESOLVE_TIMEOUT_S,
    RESOLVER,
    KafkaUnavailableError,
    Say,
    filled_then_renamed,
    get_program,
    locked,
    run_tool,
    short_hash,
)

# 4.4.0 is published as a client only: no broker or tools of that version are on Maven Central.
VERSIONS = ("4.4.0", "3.9.2")
ANSWER_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 180.0

_SOURCE = Path(__file__).parent / "java" / "ClientDriver.java"
_TOOLS_VERSIONS = ("3.9.2",)
_COMMON = [
    ("net.sourceforge.argparse4j", "argparse4j", "0.7.0"),
    ("com.fasterxml.jackson.core", "jackson-databind", "2.19.2"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
]


class JavaClientError(Exception):
    """The Java client, or our driver for it, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaClients:
    """A class path: kafka-clients and kafka-tools of one version, the codecs, our driver."""

    version: str
    jars: Path
    classes: Path
    java: str

    def command(self, main_class: str, *arguments: str) -> list[str]:
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]
        class_path = f"{self.jars}/*{os.pathsep}{self.classes}"
        return [self.java, *options, "-cp", class_path, main_class, *arguments]


def resolve_java_clients(version: str, say: Say, *, cache_root: Path = CACHE_ROOT) -> JavaClients:
    """Return the class path, downloading it on the first call on this machine."""
    java, javac, maven = (get_program(name) for name in ("java", "javac", "mvn"))
    home = cache_root / f"clients-{version}"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        jars = _get_jars(home, version, maven, say)
        classes = _get_classes(home, jars, javac)
    return JavaClients(version=version, jars=jars, classes=classes, java=java)


def _get_jars(home: Path, version: str, maven: str, say: Say) -> Path:
    pom = _pom_text(version)
    jars = home / f"jars-{short_hash(pom)}"
    if not jars.is_dir():
        say(f"Kafka's Java client {version}: fetching jars with Maven, once (about 20 MB) ...")
        (home / "pom.xml").write_text(pom)
        with filled_then_renamed(jars) as target:
            command = [maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums"]
            command += ["--file", str(home / "pom.xml"), RESOLVER, f"-DoutputDirectory={target}"]
            run_tool(command, "Maven did not answer", timeout_s=RESOLVE_TIMEOUT_S)
    return jars


def _get_classes(home: Path, jars: Path, javac: str) -> Path:
    classes = home / f"classes-{short_hash(_SOURCE.read_text(), jars.name)}"
    if not classes.is_dir():
        with filled_then_renamed(classes) as target:
            options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", f"{jars}/*", "-d", str(target)]
            try:
                run_tool([javac, *options, str(_SOURCE)], "no classes", timeout_s=300)
            except KafkaUnavailableError as error:  # our bug: do not skip
                raise JavaClientError(f"{_SOURCE.name} does not compile: {error}") from error
    return classes


def _pom_text(version: str) -> str:
    artifacts = [("org.apache.kafka", "kafka-clients", version), *_COMMON]
    if version in _TOOLS_VERSIONS:
        artifacts += [("org.apache.kafka", "kafka-tools", version)]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version>{_without_brokers(artifact)}</dependency>"
        for group, artifact, number in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">'
        "<modelVersion>4.0.0</modelVersion><groupId>penstock</groupId>"
        "<artifactId>kafka-clients-for-tests</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


def _without_brokers(artifact: str) -> str:
    """Excludes what kafka-tools depends on: only those of its classes run that need the client
    alone."""
    if artifact != "kafka-tools":
        return ""
    everything = "<groupId>*</groupId><artifactId>*</artifactId>"
    return f"<exclusions><exclusion>{everything}</exclusion></exclusions>"


class JavaClient:
    """The Java client in a JVM of its own, driven by JSON lines."""

    sets_timestamps = True

    def __init__(self, clients: JavaClients, bootstrap_servers: str, log: Path) -> None:
        self._child = Child(clients.command("ClientDriver", bootstrap_servers), log)
        self._answers = 0

    def close(self) -> None:
        self._child.end(with_signal=None, timeout_s=STOP_TIMEOUT_S)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._ask("create_topic", topic=topic, partitions=partitions)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str,
        acks: str,
        headers: Headers = HEADERS,
    ) -> None:
        records = [[_to_text(m.key), _to_text(m.value), m.timestamp_ms] for m in messages]
        texts = [[name, _to_text(value)] for name, value in headers]
        config = {"compression.type": codec, "acks": acks, "linger.ms": "200"}
        if acks != "all":
            config["enable.idempotence"] = "false"
        self._ask("produce", topic=topic, records=records, headers=texts, config=config)

    def end_offset(self, topic: str, partition: int) -> int:
        return int(self._ask("end_offset", topic=topic, partition=partition)["offset"])

    def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = {"topic": topic, "partition": partition}
        offset: int | None = self._ask("find_offset", **tp, timestamp_ms=timestamp_ms)["offset"]
        return offset

    def read(self, topic: str, partition: int, start: Start, end_offset: int) -> list[Received]:
        tp = {"topic": topic, "partition": partition}
        answer = self._ask("read", **tp, **start._asdict(), end_offset=end_offset)
        return [
            Received(
                record["partition"],
                record["offset"],
                record["timestamp_ms"],
                _from_text(record["key"]),
                base64.b64decode(record["value"]),
                tuple((name, base64.b64decode(value)) for name, value in record["headers"]),
            )
            for record in answer["records"]
        ]

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"op": op} | arguments) + "\n")
        stdin.flush()
        line = self._child.wait_next_line(self._answers, timeout_s=ANSWER_TIMEOUT_S)
        self._answers += 1
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaClientError(f"{op}: {answer['error']}")
        return answer


def _to_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _from_text(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
