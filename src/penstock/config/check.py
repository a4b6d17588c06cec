"""Checks of parsed values: a rule and the words that tell users what is allowed.

One value at a time; rules between settings are in cross_checks.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple


class ValueCheck(NamedTuple):
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


# The text of a check, as in its `allowed`, and the check that it stands for.
_SPOKEN: tuple[tuple[re.Pattern[str], Callable[..., ValueCheck]], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (r"at least (\S+), or (\S+)", at_least_or),
        (r"at least (\S+)", at_least),
        (r"from (\S+) to (\S+), or (\S+)", between_or),
        (r"from (\S+) to (\S+)", between),
    )
)
_ANY_CASE = " (any case)"


def parse_check(allowed: str) -> ValueCheck:
    """The check that `allowed` describes."""
    if not allowed:
        return ANYTHING
    if allowed == NOT_EMPTY.allowed:
        return NOT_EMPTY
    for pattern, make in _SPOKEN:
        spoken = pattern.fullmatch(allowed)
        if spoken:
            return make(*(_number(text) for text in spoken.groups()))
    kind, _, names = allowed.partition("of ")
    if kind == "one ":
        choices = names.removesuffix(_ANY_CASE).split(", ")
        return one_of_any_case(*choices) if names.endswith(_ANY_CASE) else one_of(*choices)
    if kind == "":
        return subset_of(*names.split(", "))
    return _only_false(allowed)


def _only_false(allowed: str) -> ValueCheck:
    assert allowed.startswith("only false"), f"no check is written {allowed!r}"
    return ValueCheck(allowed=allowed, accepts=lambda value: value is False)


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
