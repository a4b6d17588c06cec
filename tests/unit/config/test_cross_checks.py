"""Rules between settings."""

import pytest

from penstock.config.effective_config import resolve_broker, resolve_topic
from penstock.config.properties import parse_properties
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig


def _file(text: str) -> RawConfig:
    return parse_properties(text, file="server.properties")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker.id=1\nnode.id=2", ":2: node.id: is 2 but broker.id is 1"),
        ("broker.id=1001", ":1: broker.id: is 1001, above reserved.broker.max.id = 1000"),
        ("broker.id.generation.enable=false", "default: broker.id: is needed"),
        ("log.retention.hours=0", ":1: log.retention.ms: is 0"),
        ("log.dirs=/a,,/b", ":1: log.dirs: has an empty entry"),
        ("log.dirs=/a,/a", ":1: log.dirs: names a directory twice"),
        (
            "log.cleaner.min.compaction.lag.ms=5\nlog.cleaner.max.compaction.lag.ms=4",
            ":1: log.cleaner.min.compaction.lag.ms: is 5, above",
        ),
        ("listeners=INSIDE://:1", ":1: listeners: INSIDE has no protocol"),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:1",
            ":1: advertised.listeners: 0.0.0.0 cannot be reached",
        ),
        ("advertised.listeners=SSL://h:1", ":1: advertised.listeners: SSL is not among listeners"),
        (
            (
                "inter.broker.listener.name=SSL\nlisteners=SSL://h:1\n"
                "security.inter.broker.protocol=SSL"
            ),
            ":1: inter.broker.listener.name: excludes",
        ),
        ("listeners=SSL://h:1", "default: security.inter.broker.protocol: PLAINTEXT is not among"),
        (
            (
                "listeners=SASL_SSL://h:1\nsecurity.inter.broker.protocol=SASL_SSL\n"
                "sasl.enabled.mechanisms=PLAIN"
            ),
            "sasl.mechanism.inter.broker.protocol: GSSAPI is not among sasl.enabled.mechanisms",
        ),
        ("queued.max.request.bytes=10", ":1: queued.max.request.bytes: is 10, too small"),
        ("max.connections.per.ip=0", "needs max.connections.per.ip.overrides"),
        ("connections.max.idle.ms=100", "must be below connections.max.idle.ms = 100"),
        ("replica.fetch.wait.max.ms=40000", "above replica.socket.timeout.ms = 30000"),
        ("replica.lag.time.max.ms=499", "replica.fetch.wait.max.ms: is 500, above"),
        ("group.max.session.timeout.ms=5999", "group.min.session.timeout.ms: is 6000, above"),
        ("group.consumer.session.timeout.ms=1", "group.consumer.min.session.timeout.ms: is 45000"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_broker(_file(text))
    assert any(expected in problem for problem in caught.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "listeners=PLAINTEXT://0.0.0.0:9092",
        "listeners=PLAINTEXT://0.0.0.0:9092\nadvertised.listeners=PLAINTEXT://host:9092",
        (
            "listeners=IN://:1,OUT://[::1]:2\n"
            "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\n"
            "inter.broker.listener.name=IN"
        ),
        "broker.id=5000\nbroker.id.generation.enable=false",
        "max.connections.per.ip=0\nmax.connections.per.ip.overrides=h:1",
        "connections.max.idle.ms=-1",
        "queued.max.request.bytes=104857600",
    ],
)
def test_settings_that_fit_are_accepted(text: str) -> None:
    assert resolve_broker(_file(text)).warnings == ()


def test_a_topic_cannot_have_its_compaction_lags_crossed() -> None:
    overrides = RawConfig.from_mapping(
        {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, where="topic orders"
    )
    with pytest.raises(ConfigError, match=r"topic orders: min\.compaction\.lag\.ms: is 9, above"):
        resolve_topic(overrides, resolve_broker())


def test_a_topic_and_its_broker_cannot_cross_the_lags_together() -> None:
    broker = resolve_broker(_file("log.cleaner.max.compaction.lag.ms=8"))
    overrides = RawConfig.from_mapping({"min.compaction.lag.ms": "9"}, where="topic orders")
    assert resolve_topic(EMPTY_RAW_CONFIG, broker)["max.compaction.lag.ms"] == 8
    with pytest.raises(ConfigError, match=r"above max\.compaction\.lag\.ms = 8"):
        resolve_topic(overrides, broker)


APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, "penstock.delay.ms: is 60000, which needs message.timestamp.type = LogAppendTime"),
        (
            APPEND_TIME | {"retention.ms": "60000"},
            "penstock.delay.ms: is 60000, not below retention.ms = 60000",
        ),
        (
            APPEND_TIME | {"cleanup.policy": "compact", "max.compaction.lag.ms": "59999"},
            "penstock.delay.ms: is 60000, above max.compaction.lag.ms = 59999",
        ),
    ],
)
def test_a_delay_that_cannot_work_is_refused(configs: dict[str, str], expected: str) -> None:
    overrides = RawConfig.from_mapping({"penstock.delay.ms": "60000", **configs}, where="topic t")
    with pytest.raises(ConfigError) as caught:
        resolve_topic(overrides, resolve_broker())
    (problem,) = caught.value.problems
    assert expected in problem


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"retention.ms": "60001"},
        {"retention.ms": "-1"},
        {"cleanup.policy": "compact", "retention.ms": "1"},  # not deleted by age
    ],
)
def test_a_delay_below_the_retention_is_accepted(configs: dict[str, str]) -> None:
    given = {"penstock.delay.ms": "60000", **APPEND_TIME, **configs}
    resolved = resolve_topic(RawConfig.from_mapping(given, where="topic t"), resolve_broker())
    assert resolved["penstock.delay.ms"] == 60_000


def test_a_delay_may_take_append_time_from_the_broker() -> None:
    broker = resolve_broker(_file("log.message.timestamp.type=LogAppendTime"))
    overrides = RawConfig.from_mapping({"penstock.delay.ms": "60000"}, where="topic t")
    assert resolve_topic(overrides, broker)["penstock.delay.ms"] == 60_000


def test_a_shadowed_setting_is_a_warning() -> None:
    text = "log.retention.hours=1\nlog.retention.ms=5\nlog.retention.minutes=2"
    warnings = resolve_broker(_file(text)).warnings
    assert warnings == (
        (
            "server.properties:3: log.retention.minutes: is not used, because "
            "log.retention.ms = 5 is set"
        ),
        (
            "server.properties:1: log.retention.hours: is not used, because "
            "log.retention.ms = 5 is set"
        ),
    )


def test_min_isr_above_replication_factor_is_a_warning() -> None:
    (warning,) = resolve_broker(_file("min.insync.replicas=2")).warnings
    assert warning.startswith("server.properties:1: min.insync.replicas: is 2, above default.repl")
    assert (
        resolve_broker(_file("min.insync.replicas=2\ndefault.replication.factor=3")).warnings == ()
    )
