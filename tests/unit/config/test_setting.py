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
    Kind,
    Scope,
    Setting,
    Value,
)

_EXAMPLES = scaled(test=100, verify=1000, release=10_000)
_TEXT = st.text(max_size=30).map(str.strip)
_LIST_PARTS = st.text(st.characters(exclude_characters=","), min_size=1, max_size=10)
_VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.SHORT: st.integers(-SHORT_MAX - 1, SHORT_MAX),
    Kind.INT: st.integers(-INT_MAX - 1, INT_MAX),
    Kind.LONG: st.integers(-LONG_MAX - 1, LONG_MAX),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.STRING: _TEXT,
    Kind.PASSWORD: _TEXT,
    Kind.LIST: st.lists(_LIST_PARTS.map(str.strip).filter(bool)).map(tuple),
    Kind.CLASS: st.from_regex(r"\A[A-Za-z_$]+(\.[A-Za-z_$]+){0,3}\Z"),
}


def _setting(kind: Kind, **more: object) -> Setting:
    declared = {"name": "a.setting", "default": None, "doc": "A test.", "scope": Scope.BROKER}
    return Setting(**{**declared, "kind": kind, **more})  # type: ignore[arg-type]


def test_every_kind_has_values_to_try() -> None:
    assert set(_VALUES) == set(Kind)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_formatted_value_parses_to_itself(kind: Kind) -> None:
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
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, ""),
        (Kind.INT, ""),
        (Kind.INT, "1_000"),
        (Kind.INT, "1.0"),
        (Kind.INT, "٣"),
        (Kind.INT, str(INT_MAX + 1)),
        (Kind.SHORT, str(-SHORT_MAX - 2)),
        (Kind.LONG, str(LONG_MAX + 1)),
        (Kind.LONG, "9" * 5000),
        (Kind.DOUBLE, "NaN"),
        (Kind.DOUBLE, "half"),
        (Kind.DOUBLE, "1,5"),
        (Kind.CLASS, "not a class"),
        (Kind.CLASS, ""),
    ],
)
def test_text_that_is_no_value_of_the_kind_is_refused_with_what_is_allowed(
    kind: Kind, text: str
) -> None:
    with pytest.raises(BadValueError, match=r"^allowed: "):
        _setting(kind).parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.INT, "+7", 7),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (Kind.DOUBLE, ".5f", 0.5),
        (Kind.DOUBLE, "Infinity", inf),
        (Kind.LIST, "a , b,c", ("a", "b", "c")),
        (Kind.LIST, "", ()),
        (Kind.STRING, "  padded ", "padded"),
    ],
)
def test_text_is_read_as_kafka_reads_it(kind: Kind, text: str, value: Value) -> None:
    assert _setting(kind).parse(text) == value


def test_bounds_include_their_ends_and_are_named() -> None:
    setting = _setting(Kind.INT, check=between(2, 4))
    assert [setting.parse(text) for text in ("2", "4")] == [2, 4]
    for text in ("1", "5"):
        with pytest.raises(BadValueError, match="a whole number from 2 to 4"):
            setting.parse(text)


@pytest.mark.parametrize("text", ["13", "abc", "", str(INT_MAX + 1)])
def test_at_least_ends_where_the_kind_does_and_both_ends_are_named(text: str) -> None:
    setting = _setting(Kind.INT, check=at_least(14))
    assert [setting.parse(bound) for bound in ("14", str(INT_MAX))] == [14, INT_MAX]
    with pytest.raises(BadValueError, match=r"^allowed: a whole number from 14 to 2147483647$"):
        setting.parse(text)


def test_a_special_value_is_named_beside_the_bounds() -> None:
    setting = _setting(Kind.LONG, check=at_least_or(1, -1))
    assert setting.parse("-1") == -1
    for text in ("0", "abc"):
        with pytest.raises(BadValueError, match=f"a whole number from 1 to {LONG_MAX}, or -1$"):
            setting.parse(text)


def test_a_list_may_hold_only_the_named_parts() -> None:
    setting = _setting(Kind.LIST, check=subset_of("delete", "compact"))
    assert setting.parse("compact, delete") == ("compact", "delete")
    with pytest.raises(BadValueError, match=re.escape("of delete, compact")):
        setting.parse("delete,shred")


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in _setting(Kind.PASSWORD).show("hunter2")
    assert "hunter2" in _setting(Kind.STRING).show("hunter2")


def test_every_default_is_a_value_the_setting_itself_accepts() -> None:
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        if setting.default is not None:
            parsed = setting.parse(setting.format(setting.default))
            assert (setting.name, parsed) == (setting.name, setting.default)
            assert type(parsed) is type(setting.default)
