"""Our Java member, for each version of Kafka's Java client."""

from __future__ import annotations

from pathlib import Path

from tests.clients.java_clients import JavaClients
from tests.clients.java_programs import resolve_java_program
from tests.interop.kafka_jars import Say

_SOURCE = Path(__file__).parent / "java" / "GroupMember.java"


def resolve_java_members(version: str, say: Say) -> JavaClients:
    return resolve_java_program(version, _SOURCE, say)


def java_member(clients: JavaClients, bootstrap: str) -> list[str]:
    return clients.command("GroupMember", bootstrap)
