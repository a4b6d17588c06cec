"""Kafka's topic and broker settings that Penstock accepts and ignores, from inert_settings.txt.

They are data, not code: nothing reads their values, but a file that has them loads, a value that
Kafka would refuse is refused, and the documentation says why nothing happens.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from penstock.config.check import parse_check
from penstock.config.declare import named
from penstock.config.setting import Setting, SettingKind, SettingScope, UpdateMode, parse_value
from penstock.model.package_file import read_package_file

_NOT_SET = "-"
_TOPICS = "Topics"  # the section of topic settings; all others have settings of brokers


def inert_settings() -> Mapping[str, tuple[Setting, ...]]:
    """Section of the documentation -> its broker settings, in the order of the file."""
    return {theme: settings for theme, settings in _read().items() if theme != _TOPICS}


def inert_topic_settings() -> tuple[Setting, ...]:
    return _read()[_TOPICS]


@cache
def _read() -> dict[str, tuple[Setting, ...]]:
    by_theme: dict[str, tuple[Setting, ...]] = {}
    _, *blocks = read_package_file(__file__, "inert_settings.txt").split("\n\n")
    for block in blocks:
        head, *lines = block.splitlines()
        theme, effect = head.split(" | ")
        scope = SettingScope.TOPIC if theme == _TOPICS else SettingScope.BROKER
        by_theme[theme] = (*by_theme.get(theme, ()), *_parse_lines(lines, effect, scope))
    return by_theme


def _parse_lines(lines: list[str], effect: str, scope: SettingScope) -> Iterator[Setting]:
    for line in lines:
        name, kind_name, default, update, allowed, doc, *fallbacks = map(str.strip, line.split("|"))
        kind = SettingKind(kind_name)
        yield Setting(
            name=name,
            kind=kind,
            default=None if default == _NOT_SET else parse_value(kind, default),
            doc=doc,
            scope=scope,
            check=parse_check(allowed),
            effect=effect,
            update=UpdateMode(update),
            fallbacks=named(*fallbacks),
        )
