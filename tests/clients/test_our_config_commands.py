"""`penstock config` against a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.clients.our_topics import new_name, new_topic
from tests.clients.under_test import BrokerUnderTest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app

pytestmark = pytest.mark.xdist_group("clients")


class CommandResult(NamedTuple):
    status: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.errors
        return json.loads(self.out)


Config = Callable[..., CommandResult]


@pytest.fixture
def config(broker: BrokerUnderTest) -> Config:
    """Runs `penstock config` with this broker as its bootstrap."""

    def run(*arguments: str) -> CommandResult:
        command = ["--bootstrap", broker.bootstrap_servers, "config", *arguments]
        done = CliRunner().invoke(app, command)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return CommandResult(done.exit_code, done.stdout, done.stderr)

    return run


def by_name(described: Any) -> dict[str, Any]:
    return {entry["name"]: entry for entry in described["configs"]}


def test_a_topics_settings_are_altered_and_described(
    config: Config, broker: BrokerUnderTest
) -> None:
    topic = new_topic(broker, retention__ms="60000", segment__ms="70000")
    done = config(
        *("alter", "topic", topic, "--set", "retention.ms=80000", "--delete", "segment.ms"),
        *("--append", "cleanup.policy=compact"),
    )
    assert (done.status, done.errors) == (0, "")
    assert done.out == f"altered topic {topic}: retention.ms, cleanup.policy, segment.ms\n"
    described = config("describe", "topic", topic, "--json").json
    assert (described["type"], described["name"]) == ("topic", topic)
    entries = by_name(described)
    assert (entries["retention.ms"]["value"], entries["retention.ms"]["source"]) == (
        "80000",
        "topic",
    )
    assert entries["cleanup.policy"]["value"] == "delete,compact"
    assert "segment.ms" not in entries  # nobody sets it
    config("alter", "topic", topic, "--subtract", "cleanup.policy=delete")
    assert by_name(config("describe", "topic", topic, "--json").json)["cleanup.policy"][
        "value"
    ] == ("compact")


def test_all_shows_defaults_and_synonyms_show_where_else_it_may_be_set(
    config: Config, broker: BrokerUnderTest
) -> None:
    topic = new_topic(broker, max__message__bytes="60000")
    entries = by_name(config("describe", "topics", topic, "--all", "--synonyms", "--json").json)
    assert entries["segment.bytes"]["is_default"]
    assert entries["segment.bytes"]["value"] == entries["segment.bytes"]["default"]
    limit = entries["max.message.bytes"]
    assert limit["synonyms"][0] == {
        "name": "max.message.bytes",
        "value": "60000",
        "source": "topic",
    }
    assert limit["synonyms"][-1]["name"] == "message.max.bytes"
    text = config("describe", "topic", topic, "max.message.bytes", "--synonyms").out
    assert "may be set as" in text


def test_settings_of_brokers_show_what_clients_cannot_change(
    config: Config, broker: BrokerUnderTest
) -> None:
    with penstock.Admin(broker.bootstrap_servers) as admin:
        broker_id = str(admin.describe_cluster().controller_id)
    entries = by_name(config("describe", "broker", broker_id, "--json").json)
    assert entries["log.dirs"]["read_only"]
    assert entries["log.dirs"]["source"] == "broker's file"
    loggers = config("describe", "broker-logger", broker_id, "--json").json["configs"]
    assert {entry["source"] for entry in loggers} == {"broker logger"}
    refused = config("describe", "broker", "4711")
    assert (refused.status, refused.out) == (1, "")
    assert "4711" in refused.errors


def test_a_dry_run_changes_nothing(config: Config, broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    assert config("alter", "topic", topic, "--set", "retention.ms=1", "--dry-run").status == 0
    assert config("alter", "topic", topic, "--set", "retention.ms=x", "--dry-run").status == 1
    described = config("describe", "topic", topic, "--json").json["configs"]
    assert [entry["name"] for entry in described if entry["source"] == "topic"] == []


def test_an_unknown_setting_of_a_topic_is_refused(config: Config, broker: BrokerUnderTest) -> None:
    topic = new_topic(broker)
    refused = config("alter", "topic", topic, "--set", "retention.mss=1")
    assert (refused.status, refused.out) == (1, "")
    assert "retention.mss" in refused.errors
    refused = config("describe", "topic", topic, "retention.mss")
    assert refused.status == 1
    assert "has no setting retention.mss" in refused.errors


def test_settings_that_change_nothing_are_named(config: Config, broker: BrokerUnderTest) -> None:
    if broker.is_kafka:
        pytest.skip("Kafka does not say which settings a broker acts on")
    topic = new_topic(broker)
    done = config("alter", "topic", topic, "--set", "remote.storage.enable=true", "--json")
    assert list(done.json["without_effect"]) == ["remote.storage.enable"]
    assert "remote.storage.enable changes nothing here" in done.errors
    done = config("alter", "broker", "default", "--set", "my.plugin.setting=1")
    assert "my.plugin.setting changes nothing here: it is not a setting" in (done.errors)
    text = config("describe", "broker", "default", "my.plugin.setting").out
    assert "(hidden)" in text
    assert "sensitive, no effect" in text
    config("alter", "broker", "default", "--delete", "my.plugin.setting")


def test_settings_of_groups_are_altered(config: Config, broker: BrokerUnderTest) -> None:
    group = new_name()
    assert config("alter", "group", group, "--set", "consumer.session.timeout.ms=50000").status == 0
    entries = by_name(config("describe", "group", group, "--json").json)
    assert (
        entries["consumer.session.timeout.ms"]["value"],
        entries["consumer.session.timeout.ms"]["source"],
    ) == ("50000", "group")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("describe", "table", "orders"), "write topic, broker, group or broker-logger"),
        (("describe", "broker", "one"), "not the id of a broker"),
        (("alter", "topic", "orders"), "nothing to alter"),
        (("alter", "topic", "orders", "--set", "retention.ms"), "write NAME=VALUE"),
        (
            ("alter", "topic", "orders", "--set", "a=1", "--delete", "a"),
            "given more than once",
        ),
    ],
)
def test_wrong_usage_exits_with_2(config: Config, arguments: tuple[str, ...], message: str) -> None:
    done = config(*arguments)
    assert (done.status, done.out) == (2, "")
    assert message in done.errors
