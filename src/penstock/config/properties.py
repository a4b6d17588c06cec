"""Reads and writes Java's properties syntax, as in server.properties.

It knows no settings. `parse_properties` reads back exactly what `write_properties` wrote.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.config.raw_config import ConfigError, RawConfig, RawValue

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
_TO_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_FROM_CONTROL = {control: f"\\{letter}" for letter, control in _TO_CONTROL.items()}


class PropertyEntry(NamedTuple):
    key: str
    value: str
    line: int  # the entry's first line, from 1


def read_properties(path: Path) -> RawConfig:
    """The file's settings, decoded as Latin-1 like Java's."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([f"{path}: cannot be read ({reason})"]) from error
    return parse_properties(content.decode("latin-1"), file=str(path))


def parse_properties(text: str, *, file: str) -> RawConfig:
    """The settings in `text`. If a key occurs twice, the last value wins, with a warning."""
    values: dict[str, RawValue] = {}
    warnings: list[str] = []
    problems: list[str] = []
    for line, logical in _logical_lines(text):
        try:
            entry = _parse_entry(logical, line)
        except ValueError as error:
            problems.append(f"{file}:{line}: {error}")
            continue
        where = f"{file}:{line}"
        if entry.key in values:
            earlier = values[entry.key].where
            warnings.append(f"{where}: {entry.key} was already set at {earlier}; this one counts")
        values[entry.key] = RawValue(entry.value, where)
    return RawConfig(values=values, warnings=tuple(warnings), problems=tuple(problems))


def write_properties(values: Mapping[str, str]) -> str:
    """`values` as a properties file in ASCII, one line each, in the given order."""
    return "".join(
        f"{_escape(key, everywhere=True)}={_escape(value, everywhere=False)}\n"
        for key, value in values.items()
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank lines, continuations joined, each with its line number."""
    pending = ""
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        stripped = natural.lstrip(_BLANK)
        if not first:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        pending += stripped
        if _continues(stripped):
            pending = pending[:-1]
            if not pending:
                first = 0  # nothing to continue: in Java, too, the next line starts a new entry
            continue
        yield first, pending
        pending, first = "", 0
    if first:  # the last line of the file ends with a continuation
        yield first, pending


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parse_entry(logical: str, line: int) -> PropertyEntry:
    key = _KEY.match(logical)
    assert key is not None  # the pattern matches the empty string
    separator = _SEPARATOR.match(logical, key.end())
    assert separator is not None
    return PropertyEntry(_unescape(key.group()), _unescape(logical[separator.end() :]), line)


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(_escaped_character, text)
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("half of a character: \\ud800 to \\udfff come in pairs") from error


def _escaped_character(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped == "u":
        raise ValueError("\\u needs four hexadecimal digits; write \\\\ for a backslash")
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return _TO_CONTROL.get(escaped, escaped)


def _escape(text: str, *, everywhere: bool) -> str:
    """In a key every blank is escaped, in a value only leading ones."""
    begin = len(text) if everywhere else len(text) - len(text.lstrip(" "))
    return "".join(
        _escape_character(character, blank_too=index < begin)
        for index, character in enumerate(text)
    )


def _escape_character(character: str, *, blank_too: bool) -> str:
    if character in _FROM_CONTROL:
        return _FROM_CONTROL[character]
    if character in "\\=:#!" or (character == " " and blank_too):
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
