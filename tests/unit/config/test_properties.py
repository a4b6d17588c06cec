"""Java's properties syntax."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.config.properties import parse_properties, read_properties, write_properties
from penstock.config.raw_config import ConfigError, RawConfig

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _texts(parsed: RawConfig) -> dict[str, str]:
    return {name: value.text for name, value in parsed.values.items()}


@settings(max_examples=scaled(test=300, verify=3000, release=30_000), deadline=None)
@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=5))
def test_written_properties_read_back_equal(values: dict[str, str]) -> None:
    parsed = parse_properties(write_properties(values), file="f")
    assert _texts(parsed) == values
    assert parsed.warnings == parsed.problems == ()


@settings(max_examples=scaled(test=300, verify=3000, release=30_000), deadline=None)
@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=5))
def test_written_properties_are_ascii_one_per_line(values: dict[str, str]) -> None:
    written = write_properties(values)
    assert written.isascii()
    assert len(written.splitlines()) == len(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\t b ", {"a": "b "}),
        ("  a = b = c", {"a": "b = c"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=b\n! c=d\n  # e=f", {}),
        ("\n \t\n", {}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\n# not a comment", {"a": "one# not a comment"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n# a comment\na=b", {"a": "b"}),
        ("\\\n\na=b", {"a": "b"}),
        ("a\\ b\\:c\\=d=e", {"a b:c=d": "e"}),
        ("a=\\u0041\\u00e9\\t\\z", {"a": "Aé\tz"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=x # kept", {"a": "x # kept"}),
    ],
)
def test_the_syntax_is_javas(text: str, expected: dict[str, str]) -> None:
    parsed = parse_properties(text, file="f")
    assert _texts(parsed) == expected
    assert parsed.problems == ()


def test_a_value_has_the_line_it_starts_on() -> None:
    parsed = parse_properties("# one\na=1,\\\n2\n\nb=3", file="server.properties")
    assert parsed.values["a"].where == "server.properties:2"
    assert parsed.values["b"].where == "server.properties:5"


def test_the_last_of_duplicate_keys_wins_and_the_warning_has_both_lines() -> None:
    parsed = parse_properties("a=1\nb=2\na=3", file="f")
    assert _texts(parsed)["a"] == "3"
    (warning,) = parsed.warnings
    assert "f:1" in warning
    assert "f:3" in warning


def test_all_broken_escapes_are_reported_with_their_lines() -> None:
    parsed = parse_properties("a=\\u12\nb=fine\nc=\\ud800", file="f")
    assert [problem.split(": ")[0] for problem in parsed.problems] == ["f:1", "f:3"]
    assert _texts(parsed) == {"b": "fine"}


def test_bytes_of_a_file_are_latin_1_as_for_java(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"broker.rack=caf\xe9\n")
    assert _texts(read_properties(path)) == {"broker.rack": "café"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent.properties"
    with pytest.raises(ConfigError, match=r"absent\.properties: cannot be read \(No such file"):
        read_properties(path)
