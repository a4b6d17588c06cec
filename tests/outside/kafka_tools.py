"""Kafka's own command-line tools against the brokers, as an operator runs them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.kafka_jars import KafkaJars
from tests.outside.attempt import Attempt, OutsideFailed

STEPS = (
    "topics",
    "configs",
    "console-producer",
    "console-consumer",
    "get-offsets",
    "consumer-groups",
    "producer-perf-test",
    "consumer-perf-test",
    "delete-records",
    "delete",
)
RECORDS = 50
PERF_RECORDS = 20_000

_TOOLS = "org.apache.kafka.tools"
_QUIET = ("-Dpenstock.log.level=WARN", "-Dpenstock.log.target=SYSTEM_ERR")


class KafkaTools:
    """Runs one tool after another; each is checked by its output or by the next one."""

    def __init__(self, jars: KafkaJars, attempt: Attempt) -> None:
        self._jars = jars
        self._attempt = attempt
        self._topic = f"{attempt.prefix}-tools"
        self._group = f"{attempt.prefix}-tools-group"
        self._perf = f"{attempt.prefix}-perf"

    def run(self) -> None:
        for step in STEPS:
            getattr(self, step.replace("-", "_"))()
            self._attempt.ok(step)

    def topics(self) -> None:
        replication = str(self._attempt.brokers.replication)
        for topic in (self._topic, self._perf):
            self._tool(
                "create", f"{_TOOLS}.TopicCommand", "--create", "--topic", topic,
                "--partitions", "3", "--replication-factor", replication,
            )  # fmt: skip
        said = self._tool(
            "describe", f"{_TOOLS}.TopicCommand", "--describe", "--topic", self._topic
        )
        _expect(said, f"PartitionCount: 3\tReplicationFactor: {replication}")
        self._tool(
            "grow", f"{_TOOLS}.TopicCommand", "--alter", "--topic", self._topic, "--partitions", "4"
        )
        said = self._tool("list", f"{_TOOLS}.TopicCommand", "--list")
        _expect(said, self._topic)

    def configs(self) -> None:
        entity = ("--entity-type", "topics", "--entity-name", self._topic)
        config = "kafka.admin.ConfigCommand"
        self._tool("alter", config, "--alter", *entity, "--add-config", "max.message.bytes=200000")
        _expect(self._tool("configs", config, "--describe", *entity), "max.message.bytes=200000")
        self._tool("reset", config, "--alter", *entity, "--delete-config", "max.message.bytes")
        said = self._tool("configs-after", config, "--describe", *entity)
        if "max.message.bytes=200000" in said:
            raise OutsideFailed(f"the deleted setting is still there: {said}")
        self._log_levels(config)

    def _log_levels(self, config: str) -> None:
        entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
        logger = "penstock.network"
        self._tool("set-level", config, "--alter", *entity, "--add-config", f"{logger}=DEBUG")
        _expect(self._tool("levels", config, "--describe", *entity), f"{logger}=DEBUG")
        self._tool("reset-level", config, "--alter", *entity, "--delete-config", logger)
        _expect(self._tool("levels-after", config, "--describe", *entity), f"{logger}=INFO")

    def console_producer(self) -> None:
        lines = "".join(f"h:{n}|key-{n}|value-{n}\n" for n in range(RECORDS))
        properties = [
            "parse.key=true", "key.separator=|", "parse.headers=true", "headers.delimiter=|"
        ]  # fmt: skip
        arguments = [part for text in properties for part in ("--reader-property", text)]
        self._tool(
            "console-producer", f"{_TOOLS}.ConsoleProducer", "--topic", self._topic,
            "--compression-codec", "zstd", *arguments, text_in=lines,
        )  # fmt: skip

    def console_consumer(self) -> None:
        properties = ["print.key=true", "print.headers=true", "key.separator=|"]
        arguments = [part for text in properties for part in ("--formatter-property", text)]
        said = self._tool(
            "console-consumer", f"{_TOOLS}.consumer.ConsoleConsumer", "--topic", self._topic,
            "--group", self._group, "--from-beginning", "--max-messages", str(RECORDS),
            "--timeout-ms", "60000", *arguments,
        )  # fmt: skip
        wanted = sorted(f"h:{n}|key-{n}|value-{n}" for n in range(RECORDS))
        if sorted(said.split()) != wanted:
            raise OutsideFailed(f"the console consumer read: {said}")

    def get_offsets(self) -> None:
        said = self._tool("get-offsets", f"{_TOOLS}.GetOffsetShell", "--topic", self._topic)
        total = sum(int(line.rpartition(":")[2]) for line in said.split())
        if total != RECORDS:
            raise OutsideFailed(f"the offsets do not add up to {RECORDS}: {said}")

    def consumer_groups(self) -> None:
        command = f"{_TOOLS}.consumer.group.ConsumerGroupCommand"
        group = ("--group", self._group)
        _expect(self._tool("groups", command, "--list"), self._group)
        rows = self._lag_rows(self._tool("group", command, "--describe", *group))
        if [row[5] for row in rows] != ["0"] * 4:
            raise OutsideFailed(f"the group has a lag: {rows}")
        reset = ("--reset-offsets", "--to-earliest", "--topic", self._topic, "--execute")
        self._tool("reset-offsets", command, *group, *reset)
        rows = self._lag_rows(self._tool("group-after", command, "--describe", *group))
        if sum(int(row[5]) for row in rows) != RECORDS:
            raise OutsideFailed(f"after the reset the lag is not {RECORDS}: {rows}")
        self._tool("delete-group", command, "--delete", *group)

    def _lag_rows(self, said: str) -> list[list[str]]:
        """Parses GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ..."""
        return [line.split() for line in said.splitlines() if line.startswith(self._group)]

    def producer_perf_test(self) -> None:
        said = self._tool(
            "producer-perf", f"{_TOOLS}.ProducerPerformance", "--topic", self._perf,
            "--num-records", str(PERF_RECORDS), "--record-size", "100", "--throughput", "-1",
            "--command-property", "compression.type=lz4",
        )  # fmt: skip
        _expect(said, f"{PERF_RECORDS} records sent")

    def consumer_perf_test(self) -> None:
        said = self._tool(
            "consumer-perf", f"{_TOOLS}.ConsumerPerformance", "--topic", self._perf,
            "--num-records", str(PERF_RECORDS), "--timeout", "60000",
        )  # fmt: skip
        figures = said.splitlines()[-1].split(", ")
        if int(figures[4]) < PERF_RECORDS:
            raise OutsideFailed(f"it read fewer records: {said}")

    def delete_records(self) -> None:
        partitions = f'[{{"topic": "{self._perf}", "partition": 0, "offset": -1}}]'
        path = self._attempt.folder / "delete-records.json"
        path.write_text(f'{{"partitions": {partitions}, "version": 1}}')
        arguments = ("--offset-json-file", str(path))
        self._tool("delete-records", f"{_TOOLS}.DeleteRecordsCommand", *arguments)
        earliest, latest = (
            self._tool(
                f"offsets-{time}", f"{_TOOLS}.GetOffsetShell",
                "--topic-partitions", f"{self._perf}:0", "--time", time,
            )
            for time in ("earliest", "latest")
        )  # fmt: skip
        if earliest != latest:
            raise OutsideFailed(f"records are left: from {earliest} to {latest}")

    def delete(self) -> None:
        for topic in (self._topic, self._perf):
            self._tool("delete", f"{_TOOLS}.TopicCommand", "--delete", "--topic", topic)
        said = self._tool("list-after", f"{_TOOLS}.TopicCommand", "--list")
        if self._topic in said.split():
            raise OutsideFailed(f"the deleted topic is still listed: {said}")

    def _tool(self, name: str, main_class: str, *arguments: str, text_in: str = "") -> str:
        servers = ("--bootstrap-server", self._attempt.brokers.bootstrap_servers)
        command = quiet(self._jars.command(main_class, *servers, *arguments))
        return self._attempt.run(name, command, text_in=text_in)


def quiet(command: Sequence[str]) -> list[str]:
    """The same command, with its log on standard error, warnings only."""
    return [command[0], *_QUIET, *command[1:]]


def _expect(said: str, text: str) -> None:
    if text not in said:
        raise OutsideFailed(f"no {text!r} in: {said}")
