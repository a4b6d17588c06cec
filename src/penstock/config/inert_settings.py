"""Kafka's broker settings that Penstock accepts and ignores, read from inert_settings.txt.

They are data, not code: nothing reads their values, but a file that has them loads, a value that
Kafka would refuse is refused, and the documentation says why nothing happens.
"""

from collections.abc import Iterator
from functools import cache

from penstock.config.check import parse_check
from penstock.config.declare import broker, named
from penstock.config.setting import Setting, SettingKind, UpdateMode, parse_value
from penstock.model.package_file import read_package_file

_NOT_SET = "-"


@cache
def inert_settings() -> dict[str, tuple[Setting, ...]]:
    """Section of the documentation -> its settings, in the order of the file."""
    by_theme: dict[str, tuple[Setting, ...]] = {}
    _, *blocks = read_package_file(__file__, "inert_settings.txt").split("\n\n")
    for block in blocks:
        head, *lines = block.splitlines()
        theme, effect = head.split(" | ")
        by_theme[theme] = (*by_theme.get(theme, ()), *_parse_lines(lines, effect))
    return by_theme


def _parse_lines(lines: list[str], effect: str) -> Iterator[Setting]:
    for line in lines:
        name, kind_name, default, update, allowed, doc, *fallbacks = map(str.strip, line.split("|"))
        kind = SettingKind(kind_name)
        yield broker(
            name,
            kind,
            None if default == _NOT_SET else parse_value(kind, default),
            doc,
            parse_check(allowed),
            effect=effect,
            update=UpdateMode(update),
            fallbacks=named(*fallbacks),
        )
