"""Dynamic broker settings with unknown names: accepted, and never part of the effective config."""

import pytest

from penstock.config.custom_settings import (
    MAX_NAME_LENGTH,
    custom_names,
    describe_no_effect,
    find_custom_name_problem,
)
from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig

CUSTOM = RawConfig.from_mapping({"acme.plugin.color": "red", "num.io.threads": "3"}, where="test")


def test_an_unknown_dynamic_name_is_accepted_for_one_broker_and_for_all() -> None:
    effective = resolve_broker(dynamic_cluster=CUSTOM, dynamic_broker=CUSTOM)
    assert effective["num.io.threads"] == 3
    assert effective.keys() == resolve_broker().keys()
    assert effective.by_listener == {}


def test_an_unknown_name_in_a_file_stays_an_error() -> None:
    with pytest.raises(ConfigError, match=r"acme\.plugin\.color is not a known broker setting"):
        resolve_broker(CUSTOM)


@pytest.mark.parametrize("name", ["process.roles", "controller.quorum.voters", "config.providers"])
def test_a_misleading_name_is_refused_in_a_dynamic_config_too(name: str) -> None:
    raw = RawConfig.from_mapping({name: "x"}, where="test")
    with pytest.raises(ConfigError, match=name):
        resolve_broker(dynamic_broker=raw)


def test_settings_of_one_listener_are_not_custom() -> None:
    listener = "listener.name.internal.max.connections"
    names = ["log.retention.ms", listener, "listener.name.internal.color", "rsm.config.bucket"]
    assert custom_names(names) == {"listener.name.internal.color", "rsm.config.bucket"}


@pytest.mark.parametrize("name", ["a", "acme.plugin/Color=[1]", "x" * MAX_NAME_LENGTH])
def test_a_short_printable_name_is_accepted(name: str) -> None:
    assert find_custom_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "needs a name"),
        ("x" * (MAX_NAME_LENGTH + 1), "256 characters"),
        ("two words", "no spaces"),
        ("line\nbreak", "printable"),
        ("line\n", "printable"),
        ("nul\0", "printable"),
        ("\x1b[31mred", "printable"),
        ("größe", "ASCII"),
    ],
)
def test_other_names_are_refused_with_the_rule(name: str, words: str) -> None:
    problem = find_custom_name_problem(name)
    assert problem is not None
    assert words in problem
    assert problem.isprintable()
    assert len(problem) < 300


def test_a_log_line_suggests_the_setting_that_was_meant() -> None:
    hour, topics, unlike = describe_no_effect({"zzz.qqq", "log.retention.hour", "retention.ms"})
    assert "did you mean log.retention.hours" in hour
    assert "did you mean log.retention.ms" in topics
    assert "zzz.qqq is stored but has no effect" in unlike
    assert "delete it if unintended" in unlike


def test_only_a_few_unknown_names_are_compared_with_the_declared_ones() -> None:
    lines = list(describe_no_effect(f"log.retention.hours{number}" for number in range(9)))
    assert len(lines) == 9
    assert sum("did you mean" in line for line in lines) == 3
