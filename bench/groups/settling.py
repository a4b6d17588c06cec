"""Twenty members and a hundred partitions: from the first join until each partition has a reader.

The members are processes of the clients that the tests know. Each has been in a group of its own
before, so that the clock sees no code being loaded. Their clocks count: all processes of a machine
have the same monotonic one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clients.groups.java_members import java_member, resolve_java_members
from tests.clients.groups.stage import Member, Pool, Stage, python_member
from tests.clients.groups.story import partitions_of

from bench.broker.wire import Wire
from penstock.model.errors import ErrorCode

PARTITIONS = 100
JAVA_VERSION = "4.4.0"
TIMEOUT_S = 120.0
SESSION_MS = 30_000  # a heartbeat every three seconds, as clients have by themselves
CLASSIC = {"confluent-kafka": 5, "kafka-python": 5, "aiokafka": 5, "java": 5}
CONSUMER = {"confluent-kafka": 10, "java": 10}  # those that speak the newer protocol
_NUMBERS = itertools.count()


def measure_settling(
    bootstrap: str, logs: Path, *, protocol: str, shares: Mapping[str, int], times: int
) -> list[float]:
    """Seconds, of one new group after the other. The topic exists before."""
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
    stages = [Stage(pool, command, protocol) for command in commands]
    began_ns = time.monotonic_ns()
    members = [_join(stage, topic, protocol, group) for stage in stages]
    stages[0].wait_settled(members, partitions_of(topic, PARTITIONS), timeout_s=TIMEOUT_S)
    ended_ns = max(member.changed_ns for member in members)
    _leave(stages, members)
    return (ended_ns - began_ns) / 1e9


def _leave(stages: Sequence[Stage], members: Sequence[Member]) -> None:
    """All at the same time: one after the other, each would make the rest share anew."""
    for member in members:
        member.ask_to_leave()
    stages[0].wait(
        lambda: all(member.has_left for member in members), "all have left", timeout_s=TIMEOUT_S
    )
    for stage in stages:
        stage.release()


def _warm_up(pool: Pool, commands: Sequence[Sequence[str]], topic: str, protocol: str) -> None:
    stages = [Stage(pool, command, protocol) for command in commands]
    members = [
        _join(stage, topic, protocol, f"warm-{number}-{topic}")
        for number, stage in enumerate(stages)
    ]
    stages[0].wait(
        lambda: all(len(member.owned) == PARTITIONS for member in members),
        "each member is in a group of its own",
        timeout_s=TIMEOUT_S,
    )
    _leave(stages, members)


def _join(stage: Stage, topic: str, protocol: str, group: str) -> Member:
    assignor = "range" if protocol == "classic" else None  # the one that all clients have
    return stage.join(group, topic, assignor=assignor, session_ms=SESSION_MS)


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
