"""What a parsed value must satisfy: a rule and the words that tell a user what is allowed.
One value at a time; rules between settings are in cross_checks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCheck:
    allowed: str  # completes "allowed: <kind>, ..."; empty when the kind says it all
    accepts: Callable[[Any], bool]


ANYTHING = ValueCheck(allowed="", accepts=lambda value: True)
NOT_EMPTY = ValueCheck(allowed="not empty", accepts=lambda value: len(value) > 0)


def at_least(smallest: float) -> ValueCheck:
    return ValueCheck(allowed=f"at least {smallest}", accepts=lambda value: value >= smallest)


def between(smallest: float, largest: float) -> ValueCheck:
    return ValueCheck(
        allowed=f"from {smallest} to {largest}",
        accepts=lambda value: smallest <= value <= largest,
    )


def between_or(smallest: int, largest: int, special: int) -> ValueCheck:
    return ValueCheck(
        allowed=f"from {smallest} to {largest}, or {special}",
        accepts=lambda value: smallest <= value <= largest or value == special,
    )


def at_least_or(smallest: int, special: int) -> ValueCheck:
    return ValueCheck(
        allowed=f"at least {smallest}, or {special}",
        accepts=lambda value: value >= smallest or value == special,
    )


def one_of(*names: str) -> ValueCheck:
    return ValueCheck(allowed=f"one of {', '.join(names)}", accepts=lambda value: value in names)


def one_of_any_case(*names: str) -> ValueCheck:
    lowered = {name.lower() for name in names}
    return ValueCheck(
        allowed=f"one of {', '.join(names)} (any case)",
        accepts=lambda value: value.lower() in lowered,
    )


def subset_of(*names: str) -> ValueCheck:
    return ValueCheck(
        allowed=f"of {', '.join(names)}",
        accepts=lambda value: all(part in names for part in value),
    )
