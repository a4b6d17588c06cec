"""What a parsed value must satisfy: a rule and the words that tell a user what is allowed.
One value at a time; rules between settings are in cross_checks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    allowed: str  # completes "allowed: <kind>, ..."; empty when the kind says it all
    accepts: Callable[[Any], bool]


ANYTHING = Check(allowed="", accepts=lambda value: True)
NOT_EMPTY = Check(allowed="not empty", accepts=lambda value: len(value) > 0)


def at_least(smallest: float) -> Check:
    return Check(allowed=f"at least {smallest}", accepts=lambda value: value >= smallest)


def between(smallest: float, largest: float) -> Check:
    return Check(
        allowed=f"from {smallest} to {largest}",
        accepts=lambda value: smallest <= value <= largest,
    )


def between_or(smallest: int, largest: int, special: int) -> Check:
    return Check(
        allowed=f"from {smallest} to {largest}, or {special}",
        accepts=lambda value: smallest <= value <= largest or value == special,
    )


def at_least_or(smallest: int, special: int) -> Check:
    return Check(
        allowed=f"at least {smallest}, or {special}",
        accepts=lambda value: value >= smallest or value == special,
    )


def one_of(*names: str) -> Check:
    return Check(allowed=f"one of {', '.join(names)}", accepts=lambda value: value in names)


def one_of_any_case(*names: str) -> Check:
    lowered = {name.lower() for name in names}
    return Check(
        allowed=f"one of {', '.join(names)} (any case)",
        accepts=lambda value: value.lower() in lowered,
    )


def subset_of(*names: str) -> Check:
    return Check(
        allowed=f"of {', '.join(names)}",
        accepts=lambda value: all(part in names for part in value),
    )
