"""`penstock topic`, `produce` and `consume` against a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.clients.our_topics import new_name, new_topic
from tests.clients.under_test import BrokerUnderTest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app

pytestmark = pytest.mark.xdist_group("clients")

PENSTOCK = str(Path(sys.executable).parent / "penstock")


class CommandResult:
    """The output of a command; `lines` and `json` require that it succeeded."""

    def __init__(self, status: int, out: bytes, errors: str) -> None:
        self.status = status
        self.out = out
        self.errors = errors

    @property
    def lines(self) -> list[str]:
        assert self.status == 0, self.errors
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        (line,) = self.lines
        return json.loads(line)


Command = Callable[..., CommandResult]


@pytest.fixture
def command(broker: BrokerUnderTest) -> Command:
    """Runs `penstock` with this broker as its bootstrap, in this process."""

    def run(*arguments: str, stdin: bytes = b"") -> CommandResult:
        environment = {"PENSTOCK_BOOTSTRAP": broker.bootstrap_servers}
        done = CliRunner().invoke(app, arguments, input=stdin, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return CommandResult(done.exit_code, done.stdout_bytes, done.stderr)

    return run


def consume_all(command: Command, topic: str, *arguments: str, count: int) -> list[str]:
    wanted = ("--from-beginning", "--max-messages", str(count), "--timeout-s", "20")
    return command("consume", topic, *wanted, *arguments).lines


def test_a_topic_is_created_altered_and_deleted_on_the_command_line(command: Command) -> None:
    name = new_name()
    created = command("topic", "create", name, "--partitions", "2", "--config", "retention.ms=9000")
    assert created.lines == [f"created topic {name}: 2 partitions, replication factor 1"]
    assert name in [line.split()[0] for line in command("topic", "list").lines]
    altered = command("topic", "alter", name, "--partitions", "3", "--config", "segment.ms=7000")
    assert altered.lines == [f"altered topic {name}"]
    description = command("topic", "describe", name, "--json").json
    assert len(description["partitions"]) == 3
    assert description["configs"] == {"retention.ms": "9000", "segment.ms": "7000"}
    command("topic", "alter", name, "--delete-config", "segment.ms")
    assert command("topic", "describe", name, "--json").json["configs"] == {"retention.ms": "9000"}
    assert command("topic", "delete", name).lines == [f"deleted topic {name}"]
    assert name not in command("topic", "list").out.decode()


def test_describe_shows_every_partitions_leader_replicas_and_offsets(
    broker: BrokerUnderTest, command: Command
) -> None:
    topic = new_topic(broker, partitions=2)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(topic, str(number), partition=1)
    described = command("topic", "describe", topic, "--json").json
    leader = described["partitions"][1]["leader"]
    size = described["partitions"][1].pop("size_bytes")
    assert size > 61
    (replica,) = described["partitions"][1].pop("replicas")
    assert (replica["broker"], replica["leader"], replica["in_sync"]) == (leader, True, True)
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": leader,
        "leader_epoch": 0,
        "isr": [leader],
        "offline": [],
        "log_start_offset": 0,
        "high_watermark": 5,
        "log_end_offset": 5,
    }
    assert described["partitions"][0]["log_end_offset"] == 0
    text = command("topic", "describe", topic).lines
    assert text[-3].split() == [
        *("partition", "leader", "epoch", "replicas", "in", "sync"),
        *("log", "start", "high", "watermark", "log", "end", "bytes"),
    ]
    assert text[-1].split() == [
        "1",
        *[str(leader)],
        "0",
        *[str(leader)] * 2,
        "0",
        "5",
        "5",
        str(size),
    ]


def test_a_setting_without_effect_is_not_reported_as_altered(
    broker: BrokerUnderTest, command: Command
) -> None:
    if broker.is_kafka:
        pytest.skip("Kafka acts on it")
    topic, inert, active = new_topic(broker, partitions=1), "preallocate=true", "segment.ms=7000"
    done = command("topic", "alter", topic, "--config", inert)
    assert done.lines == [f"topic {topic} is unchanged"]
    complaint = "penstock: preallocate changes nothing here: no effect: files grow "
    assert done.errors.startswith(complaint)
    both = command("topic", "alter", topic, "--config", inert, "--config", active)
    assert both.lines == [f"altered topic {topic}"]
    assert both.errors.startswith(complaint)
    report = command("topic", "alter", topic, "--config", inert, "--json").json
    assert report["altered"] is False
    assert list(report["without_effect"]) == ["preallocate"]
    created = command("topic", "create", new_name(), "--config", inert)
    assert created.status == 0
    assert created.errors.startswith(complaint)
    assert command("topic", "alter", topic, "--config", active).errors == ""


def test_producing_nothing_creates_no_topic(command: Command) -> None:
    typo = new_name()
    done = command("produce", typo)
    assert (done.status, done.out) == (1, b"")
    assert done.errors.startswith(f"penstock: topic '{typo}': it does not exist")
    assert typo not in command("topic", "list").out.decode()
    assert command("produce", typo, stdin=b"one\n").lines == [f"1 record sent to {typo}"]


def test_a_strict_status_of_a_healthy_cluster_succeeds(command: Command) -> None:
    assert command("cluster", "status", "--strict").lines[0].endswith(": healthy")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("topic", "create", "{existing}"), "TOPIC_ALREADY_EXISTS"),
        (("topic", "create", "{missing}", "--config", "retention.ms=soon"), "retention.ms"),
        (("topic", "create", "not/a/name"), "INVALID_TOPIC_EXCEPTION"),
        (("topic", "describe", "{missing}"), "does not exist"),
        (("topic", "alter", "{existing}", "--partitions", "1"), "INVALID_PARTITIONS"),
        (("topic", "alter", "{missing}", "--config", "retention.ms=1"), "UNKNOWN_TOPIC"),
        (("topic", "delete", "{missing}"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("consume", "{missing}"), "does not exist"),
        (("produce", "not/a/name"), "INVALID_TOPIC_EXCEPTION"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_rejected_request_exits_with_1_and_prints_one_line(
    broker: BrokerUnderTest, command: Command, arguments: Sequence[str], complaint: str
) -> None:
    names = {"existing": new_topic(broker, partitions=2), "missing": new_name()}
    done = command(*[argument.format(**names) for argument in arguments])
    assert (done.status, done.out) == (1, b"")
    assert done.errors.startswith("penstock: ")
    assert complaint in done.errors
    assert done.errors.count("\n") == 1


def test_creating_and_deleting_can_be_repeated(command: Command) -> None:
    name = new_name()
    first, second = (
        command("topic", "create", name, "--if-not-exists", "--json").json for _ in range(2)
    )
    assert (first["created"], second["created"]) == (True, False)
    first, second = (
        command("topic", "delete", name, "--if-exists", "--json").json for _ in range(2)
    )
    assert (first["deleted"], second["deleted"]) == (True, False)


def test_the_bootstrap_option_may_precede_or_follow_the_subcommand(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    option = ("--bootstrap", broker.bootstrap_servers)
    environment = {"PENSTOCK_BOOTSTRAP": "127.0.0.1:1"}
    for arguments in (
        (*option, "--json", "topic", "list"),
        ("topic", *option, "--json", "list"),
        ("topic", "list", "--json", *option),
        ("--bootstrap", "127.0.0.1:2", "topic", "list", "--json", *option),
    ):
        done = CliRunner().invoke(app, arguments, env=environment)
        assert done.exit_code == 0, done.stderr
        assert topic in [load["name"] for load in json.loads(done.stdout)]


def test_lines_become_records_and_come_back_as_lines(
    broker: BrokerUnderTest, command: Command
) -> None:
    topic = new_topic(broker, partitions=1)
    sent = command("produce", topic, stdin=b"one\ntwo\r\n\nno newline at the end")
    assert sent.lines == [f"4 records sent to {topic}"]
    assert consume_all(command, topic, count=4) == ["one", "two", "", "no newline at the end"]


def test_the_first_separator_ends_the_key(broker: BrokerUnderTest, command: Command) -> None:
    topic = new_topic(broker, partitions=1)
    command("produce", topic, "--key-separator", "::", stdin=b"a::1\nb::2::3\n")
    records = [json.loads(line) for line in consume_all(command, topic, "--json", count=2)]
    assert [(record["key"], record["value"]) for record in records] == [("a", "1"), ("b", "2::3")]


def test_a_line_without_a_key_stops_the_command_and_is_named_by_number(
    broker: BrokerUnderTest, command: Command
) -> None:
    topic = new_topic(broker, partitions=1)
    done = command("produce", topic, "--key-separator", ":", stdin=b"a:1\noops\nb:2\n")
    assert done.status == 2
    assert "line 2 has no ':'" in done.errors
    assert consume_all(command, topic, count=1) == ["1"]


def test_a_file_is_sent_with_the_given_codec_and_acks(
    broker: BrokerUnderTest, command: Command, tmp_path: Path
) -> None:
    topic = new_topic(broker, partitions=1)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(500)))
    sent = command(
        *("produce", topic, "--file", str(lines), "--compression", "zstd", "--acks", "1", "--json")
    ).json
    assert sent == {"topic": topic, "sent": 500, "failed": 0, "bytes": 3890}
    assert consume_all(command, topic, count=500)[-1] == "line 499"


def test_produce_does_not_exceed_the_rate(broker: BrokerUnderTest, command: Command) -> None:
    topic = new_topic(broker, partitions=1)
    command("produce", topic, "--rate", "50", stdin=b"x\n" * 11)
    times = [
        json.loads(line)["timestamp_ms"] for line in consume_all(command, topic, "--json", count=11)
    ]
    assert times[-1] - times[0] >= 190  # ten pauses of 20 ms, less the clock's granularity


def test_json_output_has_every_field_and_every_byte_of_a_record(
    broker: BrokerUnderTest, command: Command
) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send(
            topic,
            b"\xff\xfe",
            key="schlüssel",
            headers=[("h", b"1"), ("h", b"\xff"), ("n", None)],
            timestamp_ms=1_700_000_000_000,
        )
        producer.send(topic, None)
    first, second = (json.loads(line) for line in consume_all(command, topic, "--json", count=2))
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp_ms": 1_700_000_000_000,
        "key": "schlüssel",
        "value_base64": "//4=",
        "headers": [
            {"key": "h", "value": "1"},
            {"key": "h", "value_base64": "/w=="},
            {"key": "n", "value": None},
        ],
    }
    assert (second["key"], second["value"]) == (None, None)


def test_values_are_written_byte_for_byte(broker: BrokerUnderTest, command: Command) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"\xff\x00\xfe")
        producer.send(topic, None)
    done = command(*("consume", topic, "--from-beginning", "--max-messages", "2"))
    assert (done.status, done.out) == (0, b"\xff\x00\xfe\nnull\n")


def test_consume_exits_when_no_record_arrives(broker: BrokerUnderTest, command: Command) -> None:
    done = command("consume", new_topic(broker), "--timeout-s", "0.3")
    assert (done.status, done.out, done.errors) == (0, b"", "")


@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGTERM])
def test_consume_exits_quietly_when_it_is_interrupted(
    broker: BrokerUnderTest, signal_sent: signal.Signals
) -> None:
    topic = new_topic(broker, partitions=1)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"first")
    with subprocess.Popen(
        [PENSTOCK, "consume", topic, "--from-beginning", "--bootstrap", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"  # printed at once, although stdout is a pipe
        process.send_signal(signal_sent)
        assert process.communicate(timeout=180) == (b"", b"")
    assert process.returncode == 0


def test_a_terminal_shows_a_table_and_a_progress_bar(
    broker: BrokerUnderTest, tmp_path: Path
) -> None:
    topic = new_topic(broker, partitions=1)
    lines = tmp_path / "lines.txt"
    lines.write_text("x\n" * 1_000)
    shown = on_terminal(
        f"{PENSTOCK} produce {topic} --file {lines} && {PENSTOCK} topic describe {topic}",
        broker.bootstrap_servers,
    )
    assert "sending" in shown
    assert "high watermark" in shown
    assert "───" in shown


def on_terminal(command: str, bootstrap: str) -> str:
    """Everything that a shell command shows on a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap, "COLUMNS": "120", "TERM": "xterm"}
    with subprocess.Popen(
        command, shell=True, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # on Linux this means that the other side is closed
                break
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()
