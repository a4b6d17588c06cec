"""Twenty members and a hundred partitions: from the first join until every partition is assigned.

The members are processes of the tests' clients. Each has been in its own group before, so that no
code is loaded while the clock runs. Times come from the members: all processes of a machine share
the monotonic clock.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clients.groups.harness import GroupHarness, Member, Pool, python_member
from tests.clients.groups.java_members import java_member, resolve_java_members
from tests.clients.groups.scenarios import partitions_of

from bench.broker.wire import Wire
from penstock.model.errors import ErrorCode

PARTITIONS = 100
JAVA_VERSION = "4.4.0"
TIMEOUT_S = 120.0
SESSION_MS = 30_000  # so members send a heartbeat every three seconds, the clients' default
CLASSIC = {"confluent-kafka": 5, "kafka-python": 5, "aiokafka": 5, "java": 5}
CONSUMER = {"confluent-kafka": 10, "java": 10}  # clients with the consumer protocol (KIP-848)
_NUMBERS = itertools.count()


def measure_settling(
    bootstrap: str, logs: Path, *, protocol: str, shares: Mapping[str, int], times: int
) -> list[float]:
    """Seconds for each of several new groups. The topic exists beforehand."""
    topic = f"settling-{next(_NUMBERS)}"
    _create(bootstrap, topic)
    pool = Pool(logs)
    commands = [
        _command(client, bootstrap) for client, count in shares.items() for _ in range(count)
    ]
    _warm_up(pool, commands, topic, protocol)
    seconds = [
        _settle_once(pool, commands, topic, protocol, f"group-{turn}-{topic}")
        for turn in range(times)
    ]
    pool.close()
    return seconds


def _settle_once(
    pool: Pool, commands: Sequence[Sequence[str]], topic: str, protocol: str, group: str
) -> float:
    clients = [GroupHarness(pool, command, protocol) for command in commands]
    began_ns = time.monotonic_ns()
    members = [_join(client, topic, protocol, group) for client in clients]
    clients[0].wait_settled(members, partitions_of(topic, PARTITIONS), timeout_s=TIMEOUT_S)
    ended_ns = max(member.changed_ns for member in members)
    _leave(clients, members)
    return (ended_ns - began_ns) / 1e9


def _leave(clients: Sequence[GroupHarness], members: Sequence[Member]) -> None:
    """Lets all members leave at once: one by one, each departure would rebalance the rest."""
    for member in members:
        member.ask_to_leave()
    clients[0].wait(
        lambda: all(member.has_left for member in members), "all have left", timeout_s=TIMEOUT_S
    )
    for client in clients:
        client.release()


def _warm_up(pool: Pool, commands: Sequence[Sequence[str]], topic: str, protocol: str) -> None:
    clients = [GroupHarness(pool, command, protocol) for command in commands]
    members = [
        _join(client, topic, protocol, f"warm-{number}-{topic}")
        for number, client in enumerate(clients)
    ]
    clients[0].wait(
        lambda: all(len(member.owned) == PARTITIONS for member in members),
        "each member is in its own group",
        timeout_s=TIMEOUT_S,
    )
    _leave(clients, members)


def _join(client: GroupHarness, topic: str, protocol: str, group: str) -> Member:
    assignor = "range" if protocol == "classic" else None  # supported by all clients
    return client.join(group, topic, assignor=assignor, session_ms=SESSION_MS)


def _command(client: str, bootstrap: str) -> list[str]:
    if client != "java":
        return python_member(client, bootstrap)
    return java_member(resolve_java_members(JAVA_VERSION, print), bootstrap)


def _create(bootstrap: str, topic: str) -> None:
    wire = Wire(bootstrap)
    code = wire.create_topic(topic, PARTITIONS)
    wire.close()
    if code is not ErrorCode.NONE:
        raise RuntimeError(f"topic {topic} was not created: {code.name}")
