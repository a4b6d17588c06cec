"""Settings without effect: parsed from their table as if they had been declared in code."""

import pytest

from penstock.config.check import parse_check
from penstock.config.inert_settings import inert_settings, inert_topic_settings
from penstock.config.registry import BROKER_SETTINGS, BROKER_THEMES, TOPIC_SETTINGS
from penstock.config.setting import BadValueError, SettingScope, UpdateMode, Value

_OF_BROKERS = [setting for theme in inert_settings().values() for setting in theme]
_OF_TOPICS = inert_topic_settings()


def test_no_setting_of_the_table_takes_effect() -> None:
    assert len(_OF_BROKERS) > 200
    assert not any(setting.active or setting.own for setting in (*_OF_BROKERS, *_OF_TOPICS))


def test_every_setting_of_kafka_without_effect_is_in_the_table() -> None:
    declared = {
        setting.name
        for settings in (*BROKER_THEMES.values(), TOPIC_SETTINGS.values())
        for setting in settings
        if not setting.active and not setting.own
    }
    assert declared == {setting.name for setting in (*_OF_BROKERS, *_OF_TOPICS)}


def test_settings_of_topics_are_only_topics() -> None:
    assert {setting.scope for setting in _OF_BROKERS} == {SettingScope.BROKER}
    assert {setting.scope for setting in _OF_TOPICS} == {SettingScope.TOPIC}
    assert "preallocate" not in BROKER_SETTINGS
    (fallback,) = TOPIC_SETTINGS["preallocate"].fallbacks
    assert fallback.name == "log.preallocate"


def test_every_default_is_a_value_that_its_setting_accepts() -> None:
    for setting in (*_OF_BROKERS, *_OF_TOPICS):
        if setting.default is not None:
            assert setting.parse(setting.format(setting.default)) == setting.default


def test_a_row_has_kind_default_update_mode_bounds_and_fallback() -> None:
    jitter = BROKER_SETTINGS["sasl.login.refresh.window.jitter"]
    assert (jitter.default, jitter.update) == (0.05, UpdateMode.PER_BROKER)
    with pytest.raises(BadValueError, match=r"from 0\.0 to 0\.25"):
        jitter.parse("0.3")
    (fallback,) = BROKER_SETTINGS["delegation.token.secret.key"].fallbacks
    assert fallback.name == "delegation.token.master.key"


@pytest.mark.parametrize(
    ("allowed", "accepted", "refused"),
    [
        ("at least 1", 1, 0),
        ("at least 1, or -1", -1, 0),
        ("from 0.5 to 1.0", 0.5, 0.4),
        ("from 1 to 9, or -1", -1, 10),
        ("one of a, b", "b", "B"),
        ("one of RS256, ES256 (any case)", "rs256", "rs25"),
        ("of a, b", ("a", "b"), ("a", "c")),
        ("not empty", ("a",), ()),
        ("only false: there is no tiered storage", False, True),
    ],
)
def test_a_check_is_parsed_from_its_text(allowed: str, accepted: Value, refused: Value) -> None:
    check = parse_check(allowed)
    assert check.allowed == allowed
    assert check.accepts(accepted)
    assert not check.accepts(refused)


def test_an_empty_check_accepts_everything() -> None:
    assert parse_check("").accepts("x")
