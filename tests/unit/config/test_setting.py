"""One value to and from text."""

import re
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.config.check import at_least, at_least_or, between, subset_of
from penstock.config.registry import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.config.setting import (
    INT_MAX,
    LONG_MAX,
    SHORT_MAX,
    BadValueError,
    Setting,
    SettingKind,
    SettingScope,
    Value,
)

_EXAMPLES = scaled(test=100, verify=1000, release=10_000)
_TEXT = st.text(max_size=30).map(str.strip)
_LIST_PARTS = st.text(st.characters(exclude_characters=","), min_size=1, max_size=10)
_VALUES: dict[SettingKind, st.SearchStrategy[Value]] = {
    SettingKind.BOOLEAN: st.booleans(),
    SettingKind.SHORT: st.integers(-SHORT_MAX - 1, SHORT_MAX),
    SettingKind.INT: st.integers(-INT_MAX - 1, INT_MAX),
    SettingKind.LONG: st.integers(-LONG_MAX - 1, LONG_MAX),
    SettingKind.DOUBLE: st.floats(allow_nan=False),
    SettingKind.STRING: _TEXT,
    SettingKind.PASSWORD: _TEXT,
    SettingKind.LIST: st.lists(_LIST_PARTS.map(str.strip).filter(bool)).map(tuple),
    SettingKind.CLASS: st.from_regex(r"\A[A-Za-z_$]+(\.[A-Za-z_$]+){0,3}\Z"),
}


def _setting(kind: SettingKind, **more: object) -> Setting:
    declared = {
        "name": "a.setting",
        "default": None,
        "doc": "A test.",
        "scope": SettingScope.BROKER,
    }
    return Setting(**{**declared, "kind": kind, **more})  # type: ignore[arg-type]


def test_every_kind_has_values_to_try() -> None:
    assert set(_VALUES) == set(SettingKind)


@pytest.mark.parametrize("kind", list(SettingKind))
def test_a_formatted_value_parses_to_itself(kind: SettingKind) -> None:
    setting = _setting(kind)

    @settings(max_examples=_EXAMPLES, deadline=None)
    @given(_VALUES[kind])
    def check(value: Value) -> None:
        parsed = setting.parse(setting.format(value))
        assert parsed == value
        assert type(parsed) is type(value)

    check()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SettingKind.BOOLEAN, "yes"),
        (SettingKind.BOOLEAN, ""),
        (SettingKind.INT, ""),
        (SettingKind.INT, "1_000"),
        (SettingKind.INT, "1.0"),
        (SettingKind.INT, "٣"),
        (SettingKind.INT, str(INT_MAX + 1)),
        (SettingKind.SHORT, str(-SHORT_MAX - 2)),
        (SettingKind.LONG, str(LONG_MAX + 1)),
        (SettingKind.LONG, "9" * 5000),
        (SettingKind.DOUBLE, "NaN"),
        (SettingKind.DOUBLE, "half"),
        (SettingKind.DOUBLE, "1,5"),
        (SettingKind.CLASS, "not a class"),
        (SettingKind.CLASS, ""),
    ],
)
def test_text_of_another_kind_is_rejected_with_what_is_allowed(
    kind: SettingKind, text: str
) -> None:
    with pytest.raises(BadValueError, match=r"^allowed: "):
        _setting(kind).parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SettingKind.BOOLEAN, " TRUE ", True),
        (SettingKind.INT, "+7", 7),
        (SettingKind.DOUBLE, "1e3", 1000.0),
        (SettingKind.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (SettingKind.DOUBLE, ".5f", 0.5),
        (SettingKind.DOUBLE, "Infinity", inf),
        (SettingKind.LIST, "a , b,c", ("a", "b", "c")),
        (SettingKind.LIST, "", ()),
        (SettingKind.STRING, "  padded ", "padded"),
    ],
)
def test_text_is_read_as_kafka_reads_it(kind: SettingKind, text: str, value: Value) -> None:
    assert _setting(kind).parse(text) == value


def test_bounds_are_inclusive_and_named_in_the_error() -> None:
    setting = _setting(SettingKind.INT, check=between(2, 4))
    assert [setting.parse(text) for text in ("2", "4")] == [2, 4]
    for text in ("1", "5"):
        with pytest.raises(BadValueError, match="a whole number from 2 to 4"):
            setting.parse(text)


@pytest.mark.parametrize("text", ["13", "abc", "", str(INT_MAX + 1)])
def test_at_least_is_bounded_by_its_kind_and_both_bounds_are_named(text: str) -> None:
    setting = _setting(SettingKind.INT, check=at_least(14))
    assert [setting.parse(bound) for bound in ("14", str(INT_MAX))] == [14, INT_MAX]
    with pytest.raises(BadValueError, match=r"^allowed: a whole number from 14 to 2147483647$"):
        setting.parse(text)


def test_a_special_value_is_named_after_the_bounds() -> None:
    setting = _setting(SettingKind.LONG, check=at_least_or(1, -1))
    assert setting.parse("-1") == -1
    for text in ("0", "abc"):
        with pytest.raises(BadValueError, match=f"a whole number from 1 to {LONG_MAX}, or -1$"):
            setting.parse(text)


def test_a_list_accepts_only_its_allowed_values() -> None:
    setting = _setting(SettingKind.LIST, check=subset_of("delete", "compact"))
    assert setting.parse("compact, delete") == ("compact", "delete")
    with pytest.raises(BadValueError, match=re.escape("of delete, compact")):
        setting.parse("delete,shred")


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in _setting(SettingKind.PASSWORD).show("hunter2")
    assert "hunter2" in _setting(SettingKind.STRING).show("hunter2")


def test_every_default_is_accepted_by_its_setting() -> None:
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        if setting.default is not None:
            parsed = setting.parse(setting.format(setting.default))
            assert (setting.name, parsed) == (setting.name, setting.default)
            assert type(parsed) is type(setting.default)
