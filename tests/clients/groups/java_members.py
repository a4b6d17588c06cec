"""Our Java member, compiled once against each version of Kafka's Java client."""

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

_SOURCE = Path(__file__).parent / "java" / "GroupMember.java"


def resolve_java_members(version: str, say: Say) -> JavaClients:
    """The client's class path, with our member in the place of the driver."""
    clients = resolve_java_clients(version, say)
    home = clients.jars.parent
    classes = home / f"members-{short_hash(_SOURCE.read_text(), clients.jars.name)}"
    with locked(home / ".lock"):
        if not classes.is_dir():
            _compile(clients.jars, classes)
    return replace(clients, classes=classes)


def _compile(jars: Path, classes: Path) -> None:
    with filled_then_renamed(classes) as target:
        options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", f"{jars}/*", "-d", str(target)]
        command = [get_program("javac"), *options, str(_SOURCE)]
        try:
            run_tool(command, "no classes", timeout_s=120)
        except KafkaUnavailableError as error:  # our own fault, and no reason to skip
            raise JavaClientError(f"{_SOURCE.name} does not compile: {error}") from error


def java_member(clients: JavaClients, bootstrap: str) -> list[str]:
    return clients.command("GroupMember", bootstrap)
