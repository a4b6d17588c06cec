"""Parses the raw options of a read or write into typed values.

Knows no option by name, except to catch near misses. Names are case-insensitive, as in Spark.
"""

import difflib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from penstock.client.security.properties import is_security_setting
from penstock.spark.errors import BadOption, SparkSourceError

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")
_KAFKA = "kafka."
_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_UNIT_MS = {"us": 0.001, "ms": 1, "": 1, "s": 1_000, "m": 60_000, "min": 60_000}
_UNIT_MS |= {"h": 3_600_000, "d": 86_400_000}
_NEAR = 0.85
_VERY_NEAR = 0.9  # for Kafka's own names, which resemble each other
# Kafka configs that resemble ours and mean something else; not needed here.
_UNRELATED_KAFKA_CONFIGS = frozenset(
    (
        "fetch.min.bytes",
        "fetch.max.wait.ms",
        "metadata.max.idle.ms",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.max.ms",
    )
)
_warned: set[str] = set()  # once for each process and option


class RawOptions:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._spelling = {name.lower(): name for name in options}

    def find(self, name: str) -> str | None:
        """The value, without surrounding whitespace."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def find_kafka(self, name: str) -> str | None:
        """A Kafka client config, set as `kafka.<name>` or as `<name>`."""
        prefixed, plain = self.find(_KAFKA + name), self.find(name)
        if prefixed is not None and plain is not None and prefixed != plain:
            raise BadOption(name, plain, f"kafka.{name} is {prefixed!r}: set only one of the two")
        return plain if prefixed is None else prefixed

    def all_kafka(self, belongs: Callable[[str], bool]) -> dict[str, str]:
        """The client configs whose names belong, without their prefix. No error has a value, which
        may be a secret."""
        chosen: dict[str, str] = {}
        for option, value in self._values.items():
            name = option.removeprefix(_KAFKA)
            if not belongs(name):
                continue
            if chosen.setdefault(name, value) != value:
                raise SparkSourceError(f"{name} and kafka.{name} differ: set only one of the two")
        return chosen

    def positive(self, name: str) -> int | None:
        return self._whole(name, self.find(name), least=1)

    def natural(self, name: str, default: int) -> int:
        value = self._whole(name, self.find(name), least=0)
        return default if value is None else value

    def positive_kafka(self, name: str, default: int) -> int:
        value = self._whole(f"kafka.{name}", self.find_kafka(name), least=1)
        return default if value is None else value

    def natural_kafka(self, name: str, default: int) -> int:
        value = self._whole(f"kafka.{name}", self.find_kafka(name), least=0)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, {"true": True, "false": False}, default)

    def choice(self, name: str, values: Mapping[str, _Value], default: _Value) -> _Value:
        text = self.find(name)
        return default if text is None else pick(name, text, values)

    def duration_ms(self, name: str, default: int) -> int:
        """`500ms`, `15m`; a bare number is in milliseconds."""
        text = self.find(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        unit_ms = None if match is None else _UNIT_MS.get(match[2].lower())
        if match is None or unit_ms is None:
            raise BadOption(name, text, "write a time such as 500ms, 30s, 15m or 1h")
        return round(int(match[1]) * unit_ms)

    def reject_near_misses(self, own: Collection[str], kafka: Collection[str]) -> None:
        """A misspelt option would be ignored silently. Other names may be meant for somebody else.
        `kafka` are client configs, which may have the prefix `kafka.`."""
        names = {name.lower(): name for name in (*own, *kafka)}
        letters = {_letters(name): name for name in names}
        for option, value in self._values.items():
            plain = option.removeprefix(_KAFKA)
            if option in names or plain in names or is_security_setting(plain):
                continue
            if plain in _UNRELATED_KAFKA_CONFIGS:
                self._warn_without_effect(option)
                continue
            same = letters.get(_letters(plain))
            near = [same] if same else difflib.get_close_matches(option, names, 1, _NEAR)
            if same is None and (plain != option or not near):
                near = difflib.get_close_matches(plain, kafka, n=1, cutoff=_VERY_NEAR)
            if near:
                meant = names[near[0]]
                raise BadOption(
                    self._spelling[option],
                    value,
                    f"there is no such option; did you mean {_KAFKA * (plain != option)}{meant}?",
                )
            if plain != option:
                self._warn_without_effect(option)

    def _warn_without_effect(self, option: str) -> None:
        """Kafka has many more client configs, and queries bring them from Spark's connector."""
        name = self._spelling[option]
        if name not in _warned:
            _warned.add(name)
            _log.warning("option %s has no effect here: docs/spark.md lists those that have", name)

    def _whole(self, name: str, text: str | None, *, least: int) -> int | None:
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise BadOption(name, text, f"write a whole number, at least {least}")
        return value


def pick(name: str, text: str, values: Mapping[str, _Value]) -> _Value:
    """One of a few words, case-insensitive."""
    try:
        return values[text.lower()]
    except KeyError:
        raise BadOption(name, text, f"write one of {', '.join(values)}") from None


def _letters(name: str) -> str:
    """`group_id`, `group-id` and `groupId` are mistaken for `group.id`."""
    return re.sub(r"[._-]", "", name.lower())
