"""Every outside program that is run: its name, its version, its steps and how it runs.

Invariant: the steps are declared here, so that a program that leaves one out does not pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as version_of

from tests.clients.java_clients import VERSIONS as JAVA_CLIENT_VERSIONS
from tests.clients.java_programs import resolve_java_program
from tests.interop.kafka_jars import KAFKA_VERSION, KafkaJars, Say
from tests.outside import connect, kafka_tools, mirror, packages
from tests.outside.attempt import Attempt, steps_of
from tests.outside.kafka_programs import resolve_kafka_programs

# Topics with a config; records with keys, headers and codecs; consuming in a group and committing;
# rejoining and resuming; transactions; describing and deleting; a compacted topic from its start.
WITHOUT_TRANSACTIONS = ("topics", "produce", "group", "resume", "admin", "compacted")
CLIENT_STEPS = ("topics", "produce", "group", "resume", "transactions", "admin", "compacted")
STREAMS_STEPS = ("counted", "restored")
CLIENT_TIMEOUT_S = 240.0
PROGRAM_TIMEOUT_S = 400.0

Run = Callable[[Attempt], None]
Command = tuple[Sequence[str], dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str  # as given on the command line
    title: str  # as shown in the table
    version: str
    steps: Sequence[str]
    timeout_s: float
    prepare: Callable[[Say], Run]  # raises Unavailable or KafkaUnavailableError


def list_entries() -> list[Entry]:
    return [*quick_entries(), *_python_entries(), *_java_entries(), *_kafka_entries()]


def quick_entries() -> list[Entry]:
    """The clients that need no JVM and that tests/clients does not cover."""
    go_clients = [
        ("kafka-go", "kafkago", WITHOUT_TRANSACTIONS),
        ("sarama", "sarama", CLIENT_STEPS),
        ("franz-go", "franzgo", CLIENT_STEPS),
    ]
    version = packages.find_npm_version("kafkajs")
    return [
        _client("kafkajs", version, CLIENT_STEPS, packages.resolve_kafkajs),
        *(
            _client(name, packages.find_go_version(program), steps, _go_program(program))
            for name, program, steps in go_clients
        ),
    ]


def _python_entries() -> list[Entry]:
    modules = {
        "kafka-python": "kafka_python",
        "confluent-kafka": "librdkafka",
        "aiokafka": "asyncio_kafka",
    }
    return [
        _client(package, version_of(package), CLIENT_STEPS, _python_program(module))
        for package, module in modules.items()
    ]


def _java_entries() -> list[Entry]:
    return [
        replace(entry, title="Kafka's Java client")
        for version in JAVA_CLIENT_VERSIONS
        for entry in [_client(f"java-{version}", version, CLIENT_STEPS, _java_program(version))]
    ]


def _kafka_entries() -> list[Entry]:
    return [
        _kafka("tools", "Kafka's tools", kafka_tools.STEPS, _run_tools),
        _kafka("streams", "Streams with exactly_once_v2", STREAMS_STEPS, _run_streams),
        _kafka("connect", "Connect, distributed", connect.STEPS, connect.run_connect),
        _kafka("mirror-maker", "MirrorMaker 2", mirror.STEPS, mirror.run_mirror),
    ]


def _client(
    name: str, version: str, steps: Sequence[str], resolve: Callable[[Say], Command]
) -> Entry:
    """Runs a program of ours, which gets the plan and prints its steps."""

    def prepare(say: Say) -> Run:
        command, env = resolve(say)
        return lambda attempt: _run_program(attempt, [*command, attempt.plan(steps)], env)

    return Entry(
        name=name,
        title=name,
        version=version,
        steps=steps,
        timeout_s=CLIENT_TIMEOUT_S,
        prepare=prepare,
    )


def _run_program(attempt: Attempt, command: Sequence[str], env: dict[str, str]) -> None:
    try:
        attempt.run("program", command, env=env)
    finally:
        attempt.passed += steps_of(attempt.output("program"))


def _go_program(program: str) -> Callable[[Say], Command]:
    return lambda say: (packages.resolve_go_program(program, say), {})


def _python_program(module: str) -> Callable[[Say], Command]:
    path = f"tests.outside.python.{module}"
    return lambda _say: ([sys.executable, "-W", "ignore", "-m", path], {})


def _java_program(version: str) -> Callable[[Say], Command]:
    source = packages.HERE / "java" / "ClientSmoke.java"

    def resolve(say: Say) -> Command:
        return resolve_java_program(version, source, say).command("ClientSmoke"), {}

    return resolve


def _kafka(
    name: str, title: str, steps: Sequence[str], run: Callable[[KafkaJars, Attempt], None]
) -> Entry:
    def prepare(say: Say) -> Run:
        jars = resolve_kafka_programs(say)
        return lambda attempt: run(jars, attempt)

    return Entry(
        name=name,
        title=title,
        version=KAFKA_VERSION,
        steps=steps,
        timeout_s=PROGRAM_TIMEOUT_S,
        prepare=prepare,
    )


def _run_tools(jars: KafkaJars, attempt: Attempt) -> None:
    kafka_tools.KafkaTools(jars, attempt).run()


def _run_streams(jars: KafkaJars, attempt: Attempt) -> None:
    command = jars.command(
        "WordCount", attempt.plan(()), str(attempt.folder / "state"), heap_mib=384
    )
    _run_program(attempt, kafka_tools.quiet(command), {})
