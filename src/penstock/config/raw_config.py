"""Raw config: settings as text with the place where they were written. Nothing is checked yet."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self


class ConfigError(ValueError):
    """The configuration cannot be used. Carries every problem, not only the first."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        noun = "problem" if count == 1 else "problems"
        super().__init__("\n  ".join((f"{count} {noun} in the configuration:", *self.problems)))


class RawValue(NamedTuple):
    text: str
    where: str  # "server.properties:12", "--set", "topic orders"


class RawConfig(NamedTuple):
    values: Mapping[str, RawValue] = MappingProxyType({})
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # raised together with those found later

    @classmethod
    def from_mapping(cls, texts: Mapping[str, str], *, where: str) -> Self:
        return cls(values={name: RawValue(text, where) for name, text in texts.items()})

    def overlaid_by(self, other: "RawConfig") -> "RawConfig":
        """This config with the other on top: the other's values win."""
        return RawConfig(
            values={**self.values, **other.values},
            warnings=self.warnings + other.warnings,
            problems=self.problems + other.problems,
        )


EMPTY_RAW_CONFIG = RawConfig()
