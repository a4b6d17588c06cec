"""`penstock group` and our client's view of groups, against a real broker: Penstock's, or Kafka."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.client.errors import RefusedByBroker
from penstock.client.group_values import CommittedOffset
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

pytestmark = pytest.mark.xdist_group("clients")

FIRST_MS = 1_700_000_000_000
PATIENCE_S = 180.0


class CommandResult:
    def __init__(self, status: int, out: str, errors: str) -> None:
        self.status = status
        self.out = out
        self.errors = errors

    @property
    def lines(self) -> list[str]:
        assert self.status == 0, self.errors
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        (line,) = self.lines
        return json.loads(line)


Command = Callable[..., CommandResult]


@pytest.fixture
def group_command(broker: BrokerUnderTest) -> Command:
    """Runs `penstock group` with this broker as its bootstrap, in this process."""

    def run(*arguments: str) -> CommandResult:
        environment = {"PENSTOCK_BOOTSTRAP": broker.bootstrap_servers}
        done = CliRunner().invoke(app, ("group", *arguments), env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return CommandResult(done.exit_code, done.stdout, done.stderr)

    return run


def topic_with(broker: BrokerUnderTest, *counts: int) -> str:
    """Creates a topic with this many records in each partition, one second apart."""
    topic = new_topic(broker, partitions=len(counts))
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                time_ms = FIRST_MS + number * 1000
                producer.send(topic, str(number), partition=partition, timestamp_ms=time_ms)
    return topic


def commit(broker: BrokerUnderTest, group: str, topic: str, *offsets: int) -> None:
    wanted = {
        TopicPartition(topic, partition): CommittedOffset(offset, metadata=f"at {offset}")
        for partition, offset in enumerate(offsets)
    }
    ask(broker, lambda client: client.groups.commit_offsets(group, wanted))


def committed(broker: BrokerUnderTest, group: str) -> dict[int, int]:
    offsets = ask(broker, lambda client: client.groups.fetch_offsets(group))
    return {tp.partition: at.offset for tp, at in offsets.items()}


@contextmanager
def reading(broker: BrokerUnderTest, group: str, topic: str) -> Iterator[penstock.Consumer]:
    """Yields a group member once its partitions are assigned."""
    with penstock.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group=group,
        from_beginning=True,
        auto_commit=False,
        client_id="reader",
    ) as consumer:
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.assignment():
            assert time.monotonic() < deadline, "the group did not settle"
            consumer.poll_batch(1, 0.1)
        yield consumer


def test_a_group_is_listed_and_described_with_its_member_and_lag(
    broker: BrokerUnderTest, group_command: Command
) -> None:
    group, topic = new_name(), topic_with(broker, 5, 0)
    commit(broker, group, topic, 2)
    began_ms = time.time_ns() // 1_000_000
    with reading(broker, group, topic):
        listed = {group["group"]: group for group in group_command("list", "--json").json}
        report = group_command("describe", group, "--json").json
        text = group_command("describe", group).lines
    assert listed[group] == {
        "group": group,
        "kind": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
    }
    (member,) = report["members"]
    assert member["client_id"] == "reader"
    assert member["assignment"] == {topic: [0, 1]}
    assert (report["state"], report["kind"], report["lag"]) == ("Stable", "classic", 3)
    time_lag_ms = report["time_lag_ms"]
    if broker.is_kafka:
        assert time_lag_ms is None
    else:
        # Of the record at the committed offset, or of the first one in its batch.
        newest_ms, oldest_ms = FIRST_MS + 2 * 1000, FIRST_MS
        now_ms = time.time_ns() // 1_000_000
        assert began_ms - newest_ms <= time_lag_ms <= now_ms - oldest_ms
    assert report["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed_offset": 2,
            "metadata": "at 2",
            "end_offset": 5,
            "lag": 3,
            "time_lag_ms": time_lag_ms,
            "member": member["member"],
        },
        {
            "topic": topic,
            "partition": 1,
            "committed_offset": None,
            "metadata": None,
            "end_offset": 0,
            "lag": None,
            "time_lag_ms": None,
            "member": member["member"],
        },
    ]
    assert report["partitions_without_lag"] == 1
    assert "lag         3 (1 partition without a committed or an end offset)" in text
    *lag, age, name, host = text[-2].split()
    assert (lag, name, host) == ([topic, "0", "2", "5", "3"], member["member"], member["host"])
    assert age == "-" if broker.is_kafka else re.fullmatch(r"\d+d\d+h", age)
    assert (f"time lag    {age}" in text) is not broker.is_kafka
    assert text[-1].split() == [topic, "1", "-", "0", "-", "-", member["member"], member["host"]]


def test_a_group_that_committed_nothing_has_no_lag(
    broker: BrokerUnderTest, group_command: Command
) -> None:
    group, topic = new_name(), topic_with(broker, 5, 3)
    with reading(broker, group, topic):
        report = group_command("describe", group, "--json").json
        text = group_command("describe", group).lines
    assert (report["lag"], report["partitions_without_lag"]) == (None, 2)
    assert "lag         - (2 partitions without a committed or an end offset)" in text


def test_an_empty_group_is_described_by_its_committed_offsets(
    broker: BrokerUnderTest, group_command: Command
) -> None:
    group, topic = new_name(), topic_with(broker, 5)
    commit(broker, group, topic, 5)
    report = group_command("describe", group, "--json").json
    assert (report["state"], report["members"], report["lag"]) == ("Empty", [], 0)
    assert report["time_lag_ms"] == report["partitions"][0]["time_lag_ms"] == 0
    assert "Empty" in next(line for line in group_command("list").lines if group in line)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 4}),
        (("--to-offset", "3"), {0: 3, 1: 3}),
        (("--to-offset", "7"), {0: 7, 1: 4}),
        (("--shift-by", "-2"), {0: 4, 1: 0}),
        (("--shift-by", "3"), {0: 9, 1: 4}),
        # The first record of each partition is at 2023-11-14T22:13:20Z, each later one a second
        # after the one before.
        (("--to-datetime", "2023-11-14T22:13:22Z"), {0: 2, 1: 2}),
        (("--to-datetime", "2023-11-14T22:13:25.500"), {0: 6, 1: 4}),
        (("--to-datetime", "2023-11-15T00:13:22+02:00"), {0: 2, 1: 2}),
        (("--by-duration", "P1D"), {0: 10, 1: 4}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_offsets_are_reset_only_with_execute(
    broker: BrokerUnderTest,
    group_command: Command,
    target: tuple[str, ...],
    expected: dict[int, int],
) -> None:
    group, topic = new_name(), topic_with(broker, 10, 4)
    commit(broker, group, topic, 6, 1)
    planned = group_command("reset-offsets", group, "--all-topics", *target, "--json").json
    assert {
        partition["partition"]: partition["new_offset"] for partition in planned["partitions"]
    } == expected
    assert committed(broker, group) == {0: 6, 1: 1}
    done = group_command("reset-offsets", group, "--all-topics", *target, "--execute")
    assert done.lines[-1] == f"group {group} continues from the new offsets"
    assert committed(broker, group) == expected


def test_a_dry_run_says_that_nothing_was_changed(
    broker: BrokerUnderTest, group_command: Command
) -> None:
    group, topic = new_name(), topic_with(broker, 3)
    shown = group_command("reset-offsets", group, "--topic", topic, "--to-latest")
    assert shown.lines[-1].split() == [topic, "0", "-", "3"]
    assert shown.errors == "nothing was changed: add --execute to commit these offsets\n"
    assert committed(broker, group) == {}


def test_only_the_given_partitions_are_reset(
    broker: BrokerUnderTest, group_command: Command
) -> None:
    group, topic = new_name(), topic_with(broker, 3, 3, 3)
    commit(broker, group, topic, 1, 1, 1)
    scope = ("--topic", f"{topic}:0,2")
    group_command("reset-offsets", group, *scope, "--to-latest", "--execute").lines  # noqa: B018
    assert committed(broker, group) == {0: 3, 1: 1, 2: 3}


def test_a_group_with_members_is_neither_reset_nor_deleted(
    broker: BrokerUnderTest, group_command: Command
) -> None:
    group, topic = new_name(), topic_with(broker, 5)
    reset = ("reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    with reading(broker, group, topic):
        refused = group_command(*reset)
        assert (refused.status, refused.out) == (1, "")
        assert "it has 1 member (reader on " in refused.errors
        assert "stop its consumers first" in refused.errors
        kept = group_command("delete", group)
        assert (kept.status, "NON_EMPTY_GROUP" in kept.errors) == (1, True)
        with pytest.raises(RefusedByBroker) as raced:  # it joined after the check
            commit(broker, group, topic, 5)
        assert raced.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(broker, group) == {}
    assert group_command(*reset).status == 0
    assert committed(broker, group) == {0: 5}


def test_a_deleted_group_has_no_offsets(broker: BrokerUnderTest, group_command: Command) -> None:
    group, topic = new_name(), topic_with(broker, 5)
    commit(broker, group, topic, 5)
    assert group_command("delete", group).lines == [f"deleted group {group}"]
    assert committed(broker, group) == {}
    assert group not in group_command("list").out
    again = group_command("delete", group, "--if-exists")
    assert again.lines == [f"group {group} does not exist"]


def test_single_offsets_can_be_deleted(broker: BrokerUnderTest) -> None:
    group, topic = new_name(), topic_with(broker, 1, 1)
    commit(broker, group, topic, 1, 1)
    gone = [TopicPartition(topic, 0)]
    ask(broker, lambda client: client.groups.delete_offsets(group, gone))
    assert committed(broker, group) == {1: 1}
    left = [TopicPartition(topic, 1)]
    with reading(broker, group, topic), pytest.raises(RefusedByBroker) as refused:
        ask(broker, lambda client: client.groups.delete_offsets(group, left))
    assert refused.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("describe", "{missing}"), 1, "GROUP_ID_NOT_FOUND"),
        (("delete", "{missing}"), 1, "GROUP_ID_NOT_FOUND"),
        (("reset-offsets", "{missing}", "--all-topics", "--to-latest"), 1, "committed nothing"),
        (("reset-offsets", "g", "--topic", "{missing}", "--to-latest"), 1, "does not exist"),
        (("reset-offsets", "g", "--topic", "{topic}:7", "--to-latest"), 1, "the topic has 1"),
        (("reset-offsets", "g", "--topic", "{topic}", "--shift-by", "1"), 1, "committed nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_rejected_request_prints_one_line(
    broker: BrokerUnderTest,
    group_command: Command,
    arguments: tuple[str, ...],
    status: int,
    complaint: str,
) -> None:
    names = {"missing": new_name(), "topic": topic_with(broker, 1)}
    done = group_command(*[argument.format(**names) for argument in arguments])
    assert (done.status, done.out) == (status, "")
    assert done.errors.startswith("penstock: ")
    assert complaint in done.errors
    assert done.errors.count("\n") == 1
