"""Unmodified clients send half messages and decide about them; so do ours and our commands."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.clients.scenarios import Client, Message, Received, Start
from tests.clients.test_delayed_messages import client  # noqa: F401 (a fixture)
from tests.clients.under_test import BrokerUnderTest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.model.errors import ErrorCode

pytestmark = [
    pytest.mark.xdist_group("delayed messages"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

HANG_S = 180.0
POLL_S = 0.05
GROUP = "shop"


def command(servers: str, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments], env={"PENSTOCK_BOOTSTRAP": servers})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def make_half_topic(servers: str, *groups: str) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    bound = [option for group in groups for option in ("--half-group", group)]
    assert command(servers, "topic", "create", name, "--partitions", "1", "--half", *bound)[0] == 0
    return name


@pytest.fixture
def topic(broker: BrokerUnderTest) -> str:
    return make_half_topic(broker.bootstrap_servers, GROUP)


def send_half(client: Client, topic: str, half_id: str, number: int) -> None:  # noqa: F811
    headers = (
        ("penstock-half-id", half_id.encode()),
        ("penstock-half-group", GROUP.encode()),
        ("trace", b"t"),
    )
    message = Message(number, b"key", b"value %d" % number, 0)
    client.produce(f"{topic}.half", [message], codec="none", acks="all", headers=headers)


def decide(client: Client, topic: str, half_id: str, word: bytes) -> None:  # noqa: F811
    message = Message(0, half_id.encode(), word, 0)
    client.produce(f"{topic}.half.decisions", [message], codec="none", acks="all", headers=())


def test_any_client_sends_halves_and_decides(client: Client, topic: str) -> None:  # noqa: F811
    # Ids are the group's, so that they differ from one test to the next.
    committed, rolled_back, last = (f"{topic}/{name}" for name in ("yes", "no", "last"))
    send_half(client, topic, committed, 1)
    send_half(client, topic, rolled_back, 2)
    send_half(client, topic, committed, 3)
    assert client.end_offset(topic, 0) == 0
    decide(client, topic, rolled_back, b"rollback")
    decide(client, topic, rolled_back, b"commit")
    decide(client, topic, committed, b"commit")
    decide(client, topic, committed, b"commit")
    received = read(client, topic, 2)
    assert [record.value for record in received] == [b"value 1", b"value 3"]
    assert {record.headers for record in received} == {(("trace", b"t"),)}
    send_half(client, topic, last, 4)
    decide(client, topic, last, b"commit")
    assert [record.value for record in read(client, topic, 3)][2:] == [b"value 4"]


def read(client: Client, topic: str, end_offset: int) -> list[Received]:  # noqa: F811
    deadline = time.monotonic() + HANG_S
    while client.end_offset(topic, 0) < end_offset:
        assert time.monotonic() < deadline, f"{topic} ends before {end_offset}"
        time.sleep(POLL_S)
    return client.read(topic, 0, Start(), end_offset)


def test_what_is_no_half_or_no_decision_is_refused(broker: BrokerUnderTest, topic: str) -> None:
    with penstock.Producer(broker.bootstrap_servers) as producer:

        def refusal(name: str, value: bytes, **given: Any) -> str:
            with pytest.raises(penstock.SendFailed) as failed:
                producer.send_and_wait(topic + name, value, **given)
            assert failed.value.code is ErrorCode.INVALID_RECORD
            return str(failed.value)

        half_id = {"penstock-half-id": b"a"}
        refusal(".half", b"v")
        refusal(".half", b"v", headers=half_id)
        refusal(".half", b"v", headers=half_id | {"penstock-half-group": b"strangers"})
        of_shop = half_id | {"penstock-half-group": GROUP.encode()}
        refusal(".half", b"v", headers=of_shop | {"penstock-delay-ms": b"soon"})
        refusal(".half.decisions", b"perhaps", key=b"a")
        refusal(".half.decisions", b"commit")


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """A broker that asks soon, and not often."""
    config = {
        "penstock.half.first.check.ms": "200",
        "penstock.half.check.interval.ms": "200",
        "penstock.half.check.max.interval.ms": "200",
        "penstock.half.max.checks": "2",
        "penstock.delayed.topic.num.partitions": "4",
    }
    with penstock.Broker(config=config) as broker:
        yield broker.bootstrap_servers


def test_our_client_does_the_local_work_between_half_and_decision(impatient: str) -> None:
    topic = make_half_topic(impatient, GROUP)
    steps: list[str] = []

    def work(name: str, decision: Any) -> Callable[[], Any]:
        def local() -> Any:
            steps.append(name)
            return decision

        return local

    def fail() -> Any:
        raise ZeroDivisionError

    with penstock.HalfMessages(topic, bootstrap_servers=impatient, group=GROUP) as half:
        assert half.send(b"one", local=work("one", "commit")) == "commit"
        assert half.send(b"two", local=work("two", "rollback")) == "rollback"
        with pytest.raises(ZeroDivisionError):
            half.send(b"three", local=fail)
        with pytest.raises(ValueError, match="no decision"):
            half.send(b"four", local=work("four", "perhaps"))
        with pytest.raises(penstock.UnknownTopicOrPartition):
            half.send_all(
                [penstock.HalfRecord("no-such-topic", b"five")], local=work("five", "commit")
            )
        records = [penstock.HalfRecord(topic, b"%d" % number) for number in range(3)]
        half.send_all(records, local=work("six", "commit"))
    with (
        penstock.HalfMessages(topic, bootstrap_servers=impatient, group="strangers") as half,
        pytest.raises(penstock.RefusedByBroker, match="strangers"),
    ):
        half.send(b"seven", local=work("seven", "commit"))
    assert steps == ["one", "two", "four", "six"]
    assert sorted(consume(impatient, topic, 4)) == [b"0", b"1", b"2", b"one"]


def test_any_process_of_the_group_answers_what_another_left(impatient: str) -> None:
    topic, group = make_half_topic(impatient, "till"), "till"
    done = {"paid"}

    def check(half: penstock.HalfCheck) -> Any:
        assert (half.topic, half.records) == (topic, 1)
        return "commit" if half.half_id in done else "rollback"

    with penstock.HalfMessages(topic, bootstrap_servers=impatient, group=group) as gone:
        for half_id in ("paid", "refused"):
            gone.send(half_id.encode(), local=lambda: "unknown", half_id=half_id)
    with penstock.HalfMessages(topic, bootstrap_servers=impatient, group=group, check=check):
        assert consume(impatient, topic, 1) == [b"paid"]
        wait_for_status(impatient, "refused", "rolled back")


def test_commands_list_decide_and_revive(impatient: str) -> None:
    topic, group = make_half_topic(impatient, "desk"), "desk"

    def never(half: penstock.HalfCheck) -> Any:
        return "unknown"

    def broken(half: penstock.HalfCheck) -> Any:
        raise OSError("the database is away")

    with penstock.HalfMessages(topic, bootstrap_servers=impatient, group=group) as half:
        for half_id in ("a", "b"):
            half.send(half_id.encode(), local=lambda: "unknown", half_id=half_id, key=b"k")
        half.send(b"c", local=lambda: "unknown", half_id="c")
    listed = json.loads(command(impatient, "half", "list", "--topic", topic, "--json")[1])
    assert {(one["half_id"], one["group"], one["status"]) for one in listed} == {
        (half_id, group, "pending") for half_id in ("a", "b", "c")
    }
    assert command(impatient, "half", "commit", topic, "a") == (0, "committed\n")
    assert command(impatient, "half", "rollback", topic, "a")[0] == 1
    assert command(impatient, "half", "rollback", topic, "b") == (0, "rolled back\n")
    assert command(impatient, "half", "check", topic, "b")[0] == 1
    assert command(impatient, "half", "check", topic, "c") == (0, "asked\n")
    assert command(impatient, "half", "commit", topic, "nobody")[0] == 1
    with penstock.HalfMessages(topic, bootstrap_servers=impatient, group=group, check=never):
        wait_for_status(impatient, "c", "expired")
    (expired,) = consume(impatient, f"{topic}.half.expired", 1)
    assert expired == b"c"
    assert command(impatient, "half", "commit", topic, "c")[0] == 1
    assert "expired" in command(impatient, "half", "list", "--status", "expired")[1]
    assert command(impatient, "half", "revive", topic, "c") == (0, "pending\n")
    with penstock.HalfMessages(topic, bootstrap_servers=impatient, group=group, check=broken):
        wait_for_status(impatient, "c", "expired")
    assert command(impatient, "half", "revive", topic, "c") == (0, "pending\n")
    assert command(impatient, "half", "commit", topic, "c") == (0, "committed\n")
    assert sorted(consume(impatient, topic, 2)) == [b"a", b"c"]


def test_more_halves_than_may_wait_are_refused_until_some_are_decided() -> None:
    config = {"penstock.half.max.pending": "2", "penstock.delayed.topic.num.partitions": "1"}
    with (
        penstock.Broker(config=config) as broker,
        penstock.Producer(broker.bootstrap_servers) as producer,
    ):
        topic = make_half_topic(broker.bootstrap_servers, GROUP)

        def find_refusal(half_id: int) -> str:
            headers = {"penstock-half-id": b"%d" % half_id, "penstock-half-group": GROUP.encode()}
            try:
                producer.send_and_wait(f"{topic}.half", b"%d" % half_id, headers=headers)
            except penstock.SendFailed as failed:
                return failed.code.name if failed.code else "-"
            return ""

        def decide_all(half_ids: range) -> None:
            for half_id in half_ids:
                key = b"%d" % half_id
                producer.send_and_wait(f"{topic}.half.decisions", b"rollback", key=key)

        deadline, sent = time.monotonic() + HANG_S, 0
        while not (refusal := find_refusal(sent)):  # some come before it is known
            sent += 1
            assert time.monotonic() < deadline, f"{sent} halves are taken"
        assert refusal == "POLICY_VIOLATION"
        assert sent >= 2
        decide_all(range(sent))
        while find_refusal(sent):
            assert time.monotonic() < deadline, "halves are refused although none is undecided"
            time.sleep(POLL_S)


def test_the_setting_is_for_half_topics_only(impatient: str) -> None:
    status, _ = command(
        impatient, "topic", "create", "plain", "--config", "penstock.half.groups=shop"
    )
    assert status == 1
    assert command(impatient, "topic", "create", "x", "--half-group", "shop")[0] == 2


def wait_for_status(servers: str, half_id: str, status: str) -> None:
    deadline = time.monotonic() + HANG_S
    while True:
        listed = json.loads(command(servers, "half", "list", "--status", "all", "--json")[1])
        statuses = [one["status"] for one in listed if one["half_id"] == half_id]
        if statuses == [status]:
            return
        assert time.monotonic() < deadline, f"half {half_id} is {statuses}"
        time.sleep(POLL_S)


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    with penstock.Consumer(
        topic, bootstrap_servers=servers, from_beginning=True, timeout_s=HANG_S
    ) as consumer:
        for message in consumer:
            values.append(message.value or b"")
            if len(values) == count:
                break
    return values
