"""Typed values out of a user's options."""

import pytest

from penstock.spark.errors import BadOption
from penstock.spark.option_values import RawOptions


def test_names_are_found_in_any_case() -> None:
    given = RawOptions({"MaxOffsetsPerTrigger": " 7 "})
    assert given.positive("maxOffsetsPerTrigger") == 7


def test_the_prefix_of_kafka_may_be_left_out() -> None:
    assert RawOptions({"kafka.group.id": "a"}).find_kafka("group.id") == "a"
    assert RawOptions({"group.id": "a"}).find_kafka("group.id") == "a"
    assert RawOptions({"group.id": "a", "kafka.group.id": "a"}).find_kafka("group.id") == "a"
    with pytest.raises(BadOption, match="give one of the two"):
        RawOptions({"group.id": "a", "kafka.group.id": "b"}).find_kafka("group.id")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500", 500),
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15min", 900_000),
        ("2 H", 7_200_000),
        ("1d", 86_400_000),
        ("2500us", 2),
    ],
)
def test_durations_have_units(text: str, expected: int) -> None:
    assert RawOptions({"maxTriggerDelay": text}).duration_ms("maxTriggerDelay", 1) == expected


@pytest.mark.parametrize("text", ["", "soon", "15 apples", "-1s", "1.5s"])
def test_durations_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="a time such as"):
        RawOptions({"maxTriggerDelay": text}).duration_ms("maxTriggerDelay", 1)


def test_flags_are_true_or_false() -> None:
    assert RawOptions({"f": "TRUE"}).flag("f", False)
    assert RawOptions({}).flag("f", True)
    with pytest.raises(BadOption, match="write one of true, false"):
        RawOptions({"f": "yes"}).flag("f", False)


OWN = ("maxOffsetsPerTrigger",)
OF_CLIENT = ("group.id", "isolation.level", "fetch.max.bytes", "retry.backoff.ms")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.isolation.levle", "kafka.isolation.level"),
        ("isolation_level", "isolation.level"),
    ],
)
def test_a_near_miss_is_refused_as_it_was_spelt(given: str, meant: str) -> None:
    with pytest.raises(BadOption, match=rf"option {given}='1'.* {meant}\?"):
        RawOptions({given: "1"}).refuse_near_misses(OWN, OF_CLIENT)


@pytest.mark.parametrize(
    "name", ["path", "kafka.group.id", "kafka.fetch.min.bytes", "kafka.retry.backoff.max.ms"]
)
def test_what_is_known_or_for_somebody_else_is_let_pass(name: str) -> None:
    RawOptions({name: "x"}).refuse_near_misses(OWN, OF_CLIENT)
