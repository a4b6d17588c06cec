"""`penstock group`, as far as it needs no broker: usage, timestamps, durations and scopes."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client.offset_reset import (
    InvalidReset,
    ResetScope,
    parse_duration_ms,
    parse_scope,
    parse_time_ms,
)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["group", "--help"], ["list", "describe", "reset-offsets", "delete"]),
        (["group", "list", "-h"], ["Examples:", "--json"]),
        (["group", "describe", "-h"], ["Examples:", "lag", "committed"]),
        (["group", "reset-offsets", "-h"], ["Examples:", "--execute", "--by-duration"]),
        (["group", "delete", "-h"], ["Examples:", "--if-exists"]),
    ],
)
def test_help_explains_itself_with_examples(arguments: list[str], words: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    for word in words:
        assert word in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--all-topics"),
        (["--topic", "t", "--all-topics", "--to-latest"], "either"),
        (["--topic", "t:x", "--to-latest"], "TOPIC:0,1,2"),
        (["--topic", ":1", "--to-latest"], "TOPIC:0,1,2"),
        (["--topic", "t"], "say where to"),
        (["--topic", "t", "--to-latest", "--to-earliest"], "one of"),
        (["--topic", "t", "--to-latest", "--to-offset", "1"], "one of"),
        (["--topic", "t", "--to-offset", "-1"], "--to-offset"),
        (["--topic", "t", "--to-datetime", "yesterday"], "2026-01-31T13:45:00"),
        (["--topic", "t", "--by-duration", "long"], "90m"),
        (["--topic", "t", "--by-duration", ""], "90m"),
    ],
)
def test_wrong_usage_of_a_reset_exits_2_before_contacting_a_broker(
    arguments: list[str], complaint: str
) -> None:
    nobody = {"PENSTOCK_BOOTSTRAP": "127.0.0.1:1"}
    result = CliRunner().invoke(app, ["group", "reset-offsets", "g", *arguments], env=nobody)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_timestamps_are_utc_unless_they_have_an_offset() -> None:
    assert parse_time_ms("1970-01-01T00:00:01") == 1000
    assert parse_time_ms("1970-01-01T00:00:01.500Z") == 1500
    assert parse_time_ms("1970-01-01T02:00:00+02:00") == 0
    assert parse_time_ms("1970-01-02") == 86_400_000


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("P1DT2H30M", 95_400),
        ("PT45S", 45),
        ("90m", 5_400),
        ("1d12h", 129_600),
        ("1.5s", 1.5),
    ],
)
def test_durations_are_parsed_in_both_forms(text: str, expected_s: float) -> None:
    assert parse_duration_ms(text) == expected_s * 1000


@pytest.mark.parametrize("text", ["P1M", "P1M2D", "P", "PT", "1h1d", "-1h", "1"])
def test_an_empty_duration_or_one_of_months_is_refused(text: str) -> None:
    with pytest.raises(InvalidReset, match="P1DT2H30M"):
        parse_duration_ms(text)


def test_a_scope_is_a_topic_or_some_of_its_partitions() -> None:
    assert parse_scope("orders") == ResetScope("orders")
    assert parse_scope("orders:0,12") == ResetScope("orders", (0, 12))
