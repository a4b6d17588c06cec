"""Typed values from a user's options."""

import pytest

from penstock.spark.errors import BadOption
from penstock.spark.option_values import RawOptions


def test_option_names_are_case_insensitive() -> None:
    raw = RawOptions({"MaxOffsetsPerTrigger": " 7 "})
    assert raw.positive("maxOffsetsPerTrigger") == 7


def test_kafka_prefix_is_optional() -> None:
    assert RawOptions({"kafka.group.id": "a"}).find_kafka("group.id") == "a"
    assert RawOptions({"group.id": "a"}).find_kafka("group.id") == "a"
    assert RawOptions({"group.id": "a", "kafka.group.id": "a"}).find_kafka("group.id") == "a"
    with pytest.raises(BadOption, match="set only one of the two"):
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
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(BadOption, match="a time such as"):
        RawOptions({"maxTriggerDelay": text}).duration_ms("maxTriggerDelay", 1)


def test_flags_are_true_or_false() -> None:
    assert RawOptions({"f": "TRUE"}).flag("f", False)
    assert RawOptions({}).flag("f", True)
    with pytest.raises(BadOption, match="write one of true, false"):
        RawOptions({"f": "yes"}).flag("f", False)


OWN = ("maxOffsetsPerTrigger",)
KAFKA = ("group.id", "isolation.level", "fetch.max.bytes", "retry.backoff.ms")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.isolation.levle", "kafka.isolation.level"),
        ("isolation_level", "isolation.level"),
        ("kafka.group_id", "kafka.group.id"),
        ("kafka.groupId", "kafka.group.id"),
    ],
)
def test_near_miss_is_rejected_with_the_option_it_means(option: str, meant: str) -> None:
    with pytest.raises(BadOption, match=rf"option {option}='1'.* {meant}\?"):
        RawOptions({option: "1"}).reject_near_misses(OWN, KAFKA)


@pytest.mark.parametrize(
    "name", ["path", "kafka.group.id", "kafka.fetch.min.bytes", "kafka.retry.backoff.max.ms"]
)
def test_other_options_pass(name: str) -> None:
    RawOptions({name: "x"}).reject_near_misses(OWN, KAFKA)


@pytest.mark.parametrize("name", ["kafka.fetch.max.wait.ms", "kafka.Session.Timeout.ms"])
def test_configs_without_effect_are_named_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        RawOptions({name: "1", "kafka.group.id": "g", "path": "p"}).reject_near_misses(OWN, KAFKA)
    assert [record.getMessage().split()[1] for record in caplog.records] == [name]
