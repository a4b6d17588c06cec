"""Our single-file Java programs, compiled once against each version of the Java client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.clients.java_clients import JavaClientError, JavaClients, resolve_java_clients
from tests.interop.kafka_jars import (
    KafkaUnavailableError,
    Say,
    filled_then_renamed,
    get_program,
    locked,
    run_tool,
    short_hash,
)


def resolve_java_program(version: str, source: Path, say: Say) -> JavaClients:
    """The client's class path, with the program instead of the driver."""
    clients = resolve_java_clients(version, say)
    home = clients.jars.parent
    classes = home / f"{source.stem}-{short_hash(source.read_text(), clients.jars.name)}"
    with locked(home / ".lock"):
        if not classes.is_dir():
            _compile(source, clients.jars, classes)
    return replace(clients, classes=classes)


def _compile(source: Path, jars: Path, classes: Path) -> None:
    with filled_then_renamed(classes) as target:
        options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", f"{jars}/*", "-d", str(target)]
        try:
            run_tool([get_program("javac"), *options, str(source)], "no classes", timeout_s=300)
        except KafkaUnavailableError as error:  # our bug: do not skip
            raise JavaClientError(f"{source.name} does not compile: {error}") from error
