"""Effective configs: typed values with their source, from raw text."""

import pytest

from penstock.config.effective_config import (
    EffectiveConfig,
    SettingSource,
    resolve_broker,
    resolve_topic,
)
from penstock.config.properties import parse_properties
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig
from penstock.config.setting import Value


def _file(*lines: str) -> RawConfig:
    return parse_properties("\n".join(lines), file="server.properties")


def _given(**texts: str) -> RawConfig:
    return RawConfig.from_mapping(
        {name.replace("_", "."): text for name, text in texts.items()}, where="test"
    )


def _problems(given: RawConfig) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        resolve_broker(given)
    return caught.value.problems


def _retention(
    broker: EffectiveConfig, overrides: RawConfig = EMPTY_RAW_CONFIG
) -> tuple[Value, SettingSource]:
    effective = resolve_topic(overrides, broker).get_effective("retention.ms")
    return effective.value, effective.source


def test_an_unset_setting_has_its_default() -> None:
    effective = resolve_broker().get_effective("num.partitions")
    assert (effective.value, effective.source, effective.where) == (1, SettingSource.DEFAULT, None)


def test_a_value_from_the_file_has_its_line() -> None:
    effective = resolve_broker(_file("", "num.partitions=12")).get_effective("num.partitions")
    assert (effective.value, effective.source) == (12, SettingSource.STATIC_BROKER)
    assert effective.where == "server.properties:2"


@pytest.mark.parametrize(
    ("lines", "expected_ms"),
    [
        ((), 604_800_000),
        (("log.retention.hours=2",), 7_200_000),
        (("log.retention.hours=2", "log.retention.minutes=3"), 180_000),
        (("log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"), 4),
        (("log.retention.hours=2", "log.retention.ms=-1"), -1),
        (("log.retention.hours=-1",), -1),
        (("log.retention.minutes=-5",), -1),
    ],
)
def test_retention_is_taken_from_the_finest_unit_that_was_given(
    lines: tuple[str, ...], expected_ms: int
) -> None:
    broker = resolve_broker(_file(*lines))
    assert broker["log.retention.ms"] == expected_ms
    assert _retention(broker)[0] == expected_ms


def test_a_topic_setting_comes_from_topic_then_broker_then_default() -> None:
    plain, set_up = resolve_broker(), resolve_broker(_file("log.retention.hours=1"))
    assert _retention(plain) == (604_800_000, SettingSource.DEFAULT)
    assert _retention(set_up) == (3_600_000, SettingSource.STATIC_BROKER)
    assert _retention(set_up, _given(retention_ms="5")) == (5, SettingSource.TOPIC)


def test_a_value_from_a_fallback_has_the_name_it_was_set_as() -> None:
    broker = resolve_broker(_file("log.roll.hours=3"))
    effective = resolve_topic(EMPTY_RAW_CONFIG, broker).get_effective("segment.ms")
    assert (effective.value, effective.set_as) == (10_800_000, "log.roll.hours")
    assert effective.where == "server.properties:1"
    assert effective.setting.name == "segment.ms"


def test_flush_ms_falls_back_to_the_schedulers_interval() -> None:
    broker = resolve_broker(_file("log.flush.scheduler.interval.ms=250"))
    assert resolve_topic(EMPTY_RAW_CONFIG, broker)["flush.ms"] == 250


def test_log_dir_is_used_only_without_log_dirs() -> None:
    assert resolve_broker(_file("log.dir=/a"))["log.dirs"] == ("/a",)
    assert resolve_broker(_file("log.dir=/a", "log.dirs=/b,/c"))["log.dirs"] == ("/b", "/c")


def test_node_id_is_another_name_of_broker_id() -> None:
    assert resolve_broker(_file("node.id=7"))["broker.id"] == 7
    assert resolve_broker(_file("node.id=7", "broker.id=7"))["broker.id"] == 7


def test_dynamic_values_of_a_broker_override_the_clusters_and_these_the_file() -> None:
    layers = [RawConfig.from_mapping({"log.retention.ms": text}, where=text) for text in "123"]
    static, cluster, broker = layers
    only_static = resolve_broker(static)
    with_cluster = resolve_broker(static, dynamic_cluster=cluster)
    with_all = resolve_broker(static, dynamic_cluster=cluster, dynamic_broker=broker)
    problems = [
        config.get_effective("log.retention.ms") for config in (only_static, with_cluster, with_all)
    ]
    assert [value.value for value in problems] == [1, 2, 3]
    assert [value.source for value in problems] == [
        SettingSource.STATIC_BROKER,
        SettingSource.DYNAMIC_CLUSTER,
        SettingSource.DYNAMIC_BROKER,
    ]


def test_a_read_only_setting_cannot_change_while_the_broker_runs() -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs is read-only: .* restart the broker"):
        resolve_broker(dynamic_broker=_given(log_dirs="/x"))


def test_a_per_broker_setting_cannot_be_set_for_the_cluster() -> None:
    own = _given(sasl_kerberos_service_name="kafka")
    assert resolve_broker(dynamic_broker=own)["sasl.kerberos.service.name"] == "kafka"
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.service\.name is set per broker"):
        resolve_broker(dynamic_cluster=own)


def test_an_invalid_value_is_reported_with_file_line_key_value_and_allowed_values() -> None:
    (problem,) = _problems(_file("# ours", "log.segment.bytes=13"))
    assert problem == (
        "server.properties:2: log.segment.bytes = '13' is not valid; "
        "allowed: a whole number from 14 to 2147483647"
    )


def test_an_unknown_name_suggests_the_nearest_names() -> None:
    (problem,) = _problems(_file("log.retention.hour=1"))
    assert problem.startswith("server.properties:1: log.retention.hour is not a known broker")
    assert "log.retention.hours" in problem


def test_an_unknown_name_without_a_similar_one_gets_no_suggestion() -> None:
    (problem,) = _problems(_file("zzz.qqq=1"))
    assert problem.endswith("zzz.qqq is not a known broker setting; remove it")


def test_a_broker_setting_on_a_topic_suggests_the_topic_setting() -> None:
    with pytest.raises(ConfigError, match=r"hours is not a known topic .* mean retention\.ms\?"):
        resolve_topic(_given(log_retention_hours="1"), resolve_broker())


def test_a_topic_setting_on_a_broker_suggests_the_broker_setting() -> None:
    (problem,) = _problems(_file("file.delete.delay.ms=1"))
    assert problem.endswith("did you mean log.segment.delete.delay.ms?")


def test_all_problems_are_reported_at_once() -> None:
    problems = _problems(
        _file("nonsense=1", "num.partitions=0", "a=\\u1", "process.roles=broker", "broker.id=x")
    )
    lines = sorted(problem.split(": ")[0] for problem in problems)
    assert lines == [f"server.properties:{line}" for line in (1, 2, 3, 4, 5)]


def test_the_error_counts_and_lists_its_problems() -> None:
    with pytest.raises(ConfigError, match=r"^2 problems in the configuration:") as caught:
        resolve_broker(_file("num.partitions=0", "broker.id=x"))
    assert all(problem in str(caught.value) for problem in caught.value.problems)


@pytest.mark.parametrize(
    "name",
    [
        "process.roles",
        "controller.quorum.voters",
        "controller.listener.names",
        "metadata.log.dir",
        "broker.session.timeout.ms",
    ],
)
def test_kraft_settings_are_refused_with_an_alternative(name: str) -> None:
    (problem,) = _problems(_file(f"{name}=1"))
    assert f"{name} belongs to KRaft mode" in problem
    assert "zookeeper.connect" in problem


def test_config_providers_are_refused_because_values_are_not_substituted() -> None:
    (problem,) = _problems(_file("config.providers=file"))
    assert "write the value itself" in problem


def test_a_bad_secret_is_not_repeated() -> None:
    (problem,) = _problems(_file("ssl.keystore.passwrd=hunter2"))
    assert "hunter2" not in problem
    assert "ssl.keystore.password" in problem


def test_settings_of_one_listener_are_typed_and_kept_under_their_full_name() -> None:
    plain = "listener.name.internal.max.connections"
    mechanism = "listener.name.sasl_ssl.plain.connections.max.reauth.ms"
    broker = resolve_broker(_file(f"{plain}=10", f"{mechanism}=3600000"))
    assert {name: effective.value for name, effective in broker.by_listener.items()} == {
        plain: 10,
        mechanism: 3_600_000,
    }
    assert broker["max.connections"] == 2**31 - 1


def test_a_listeners_setting_is_checked_like_the_setting_behind_it() -> None:
    (problem,) = _problems(_file("listener.name.internal.ssl.client.auth=maybe"))
    assert "one of required, requested, none" in problem
    (unknown,) = _problems(_file("listener.name.internal.no.such.thing=1"))
    assert "not a known broker setting" in unknown


def test_plugin_settings_are_accepted_without_a_plugin() -> None:
    assert resolve_broker(_file("rsm.config.bucket=b")).warnings == ()


def test_explicit_settings_without_effect_are_listed_with_reasons() -> None:
    broker = resolve_broker(_file("num.io.threads=16", "log.segment.bytes=1048576"))
    (inert,) = broker.without_effect()
    assert inert.setting.name == "num.io.threads"
    assert inert.setting.effect == "accepted, no effect: one event loop serves a broker"


def test_settings_of_listeners_and_of_plugins_are_named_as_without_effect() -> None:
    given = _file("listener.name.internal.max.connections=5", "rsm.config.bucket=b")
    line = resolve_broker(given).describe_without_effect()
    assert line is not None
    assert "2 of the settings change nothing here: " in line
    assert (
        "listener.name.internal.max.connections (no effect: only settings of TLS and SASL" in line
    )
    assert "rsm.config.bucket (no effect: there are no plugins)" in line


def test_warnings_of_the_file_are_passed_on() -> None:
    broker = resolve_broker(_file("num.partitions=1", "num.partitions=2"))
    assert broker["num.partitions"] == 2
    assert any("already set at server.properties:1" in warning for warning in broker.warnings)


def test_the_overlaid_config_wins() -> None:
    both = _file("num.partitions=1", "broker.id=3").overlaid_by(_given(num_partitions="9"))
    broker = resolve_broker(both)
    assert (broker["num.partitions"], broker["broker.id"]) == (9, 3)
    assert broker.get_effective("num.partitions").where == "test"


def test_typed_getters_return_values_of_their_type() -> None:
    config = resolve_broker(_given(broker_rack="r1", log_dirs="/a,/b"))
    assert config.get_int("num.partitions") == 1
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_str("offsets.storage") == "kafka"
    assert config.get_list("log.dirs") == ("/a", "/b")
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.find_str("broker.rack") == "r1"
    assert config.find_str("zookeeper.connect") is None


def test_typed_getters_reject_a_setting_of_another_type() -> None:
    config = resolve_broker()
    with pytest.raises(AssertionError, match=r"num\.partitions is 1, not a text"):
        config.get_str("num.partitions")
    with pytest.raises(AssertionError, match=r"zookeeper\.connect is None, not a text"):
        config.get_str("zookeeper.connect")


def test_an_effective_value_shows_no_secret() -> None:
    broker = resolve_broker(_given(ssl_keystore_password="s3cret"))
    shown = repr(broker.get_effective("ssl.keystore.password"))
    assert shown == "EffectiveValue(ssl.keystore.password=[hidden], STATIC_BROKER)"
    assert "=1," in repr(broker.get_effective("num.partitions"))
