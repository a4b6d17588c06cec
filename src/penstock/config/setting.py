"""One setting: its name, kind, default, bounds and effect, and its value to and from text.

It knows no file and no other setting. Invariant: a formatted value parses back to itself.
"""

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from math import inf, isnan
from typing import NamedTuple

from penstock.config.check import ANYTHING, ValueCheck

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1  # Kafka's "never" and "no limit" in a long
DOUBLE_MAX = sys.float_info.max  # Java's Double.MAX_VALUE, "no limit" in a double

Value = bool | int | float | str | tuple[str, ...] | None

ACTIVE = ""
NOT_YET = "accepted, not yet in effect"
# The documentation of a dynamic setting that this broker does not know.
NOT_OURS = "Not a setting of this broker: it is stored, and has no effect here."


class SettingKind(StrEnum):
    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    PASSWORD = "password"  # noqa: S105 (a kind, not a secret)
    CLASS = "class"


class SettingScope(StrEnum):
    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


class UpdateMode(StrEnum):
    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class BadValueError(ValueError):
    """The text cannot be a value of this setting; the message says what is allowed."""


class FallbackSetting(NamedTuple):
    """A broker setting whose value is used when the setting that names it is not set."""

    name: str
    multiplier: int = 1  # hours and minutes become milliseconds

    def convert(self, value: Value) -> Value:
        if self.multiplier == 1 or not isinstance(value, int):
            return value
        return -1 if value < 0 else value * self.multiplier


_OF_LISTENERS = ("ssl.", "sasl.", "penstock.sasl.", "connections.max.reauth.ms")


class Setting(NamedTuple):
    """A declaration. Everything else (parsing, documents, typed configs) is read from it."""

    name: str
    kind: SettingKind
    default: Value  # None: not set
    doc: str
    scope: SettingScope
    check: ValueCheck = ANYTHING
    effect: str = ACTIVE  # empty: in effect; otherwise why it has none
    update: UpdateMode = UpdateMode.READ_ONLY
    fallbacks: tuple[FallbackSetting, ...] = ()  # in order: the first one that is set wins
    own: bool = False  # Penstock's own, unknown to Kafka

    @property
    def active(self) -> bool:
        return self.effect == ACTIVE

    @property
    def sensitive(self) -> bool:
        return self.kind is SettingKind.PASSWORD

    @property
    def of_listeners(self) -> bool:
        """Whether `listener.name.<listener>.<setting>` is read."""
        return self.name.startswith(_OF_LISTENERS)

    def parse(self, text: str) -> Value:
        """The typed value of `text`, or BadValueError."""
        try:
            value = parse_value(self.kind, text.strip())
        except ValueError:
            raise BadValueError(f"allowed: {self.allowed()}") from None
        if not self.check.accepts(value):
            raise BadValueError(f"allowed: {self.allowed()}")
        return value

    def format(self, value: Value) -> str:
        """Text that parses to `value`; empty for a value that is not set."""
        return format_value(value)

    def show(self, text: str) -> str:
        """`text` for a message; a secret is hidden."""
        return "[hidden]" if self.sensitive else repr(text)

    def allowed(self) -> str:
        """The allowed values, in words."""
        words, bounds = _KIND_IN_WORDS[self.kind], self.check.allowed
        if not bounds:
            return words
        if self.kind not in _LARGEST:
            return f"{words}, {bounds}"
        # Bounds replace the kind's range, which closes those that are open above.
        bounds = re.sub(r"^at least (\S+?)(?=,|$)", rf"from \1 to {_LARGEST[self.kind]}", bounds)
        comma = "" if bounds.startswith("from ") else ","
        return f"a whole number{comma} {bounds}"


def parse_value(kind: SettingKind, text: str) -> Value:
    """Raises ValueError if the text is not a value of its kind."""
    return _PARSERS[kind](text)


def format_value(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _format_double(value)
    return str(value)


def _format_double(value: float) -> str:
    if value in (inf, -inf):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value).replace("e+", "E").replace("e", "E")


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError
    return lowered == "true"


def _whole_number(kind: SettingKind) -> Callable[[str], int]:
    largest = _LARGEST[kind]
    smallest = -largest - 1

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
        if number is None or not smallest <= number <= largest:
            raise ValueError
        return number

    return parse


def _parse_double(text: str) -> float:
    if re.fullmatch(r"[+-]?(Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?)", text, re.ASCII):
        number = float(text.rstrip("dDfF"))
        if not isnan(number):
            return number
    raise ValueError


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _parse_class(text: str) -> str:
    if not re.fullmatch(r"[\w$]+(\.[\w$]+)*", text):
        raise ValueError
    return text


_LARGEST = {SettingKind.SHORT: SHORT_MAX, SettingKind.INT: INT_MAX, SettingKind.LONG: LONG_MAX}
_KIND_IN_WORDS = {
    SettingKind.BOOLEAN: "true or false",
    SettingKind.SHORT: f"a whole number from {-SHORT_MAX - 1} to {SHORT_MAX}",
    SettingKind.INT: f"a whole number from {-INT_MAX - 1} to {INT_MAX}",
    SettingKind.LONG: f"a whole number from {-LONG_MAX - 1} to {LONG_MAX}",
    SettingKind.DOUBLE: "a number",
    SettingKind.STRING: "text",
    SettingKind.LIST: "a comma-separated list",
    SettingKind.PASSWORD: "a secret text",
    SettingKind.CLASS: "a dotted class name",
}
# Each raises ValueError if the text is not a value of its kind.
_PARSERS: dict[SettingKind, Callable[[str], Value]] = {
    SettingKind.BOOLEAN: _parse_boolean,
    SettingKind.SHORT: _whole_number(SettingKind.SHORT),
    SettingKind.INT: _whole_number(SettingKind.INT),
    SettingKind.LONG: _whole_number(SettingKind.LONG),
    SettingKind.DOUBLE: _parse_double,
    SettingKind.STRING: str,
    SettingKind.LIST: _parse_list,
    SettingKind.PASSWORD: str,
    SettingKind.CLASS: _parse_class,
}
