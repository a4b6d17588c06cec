"""Custom settings: dynamic broker settings whose names are not declared in the registry.

Kafka stores such settings for its plugins. Here they are stored and described too, but nothing
reads them. An unknown name in a file stays an error, because there it is a misspelling.
Invariant: a custom setting is never part of an EffectiveConfig.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from penstock.config.registry import find_listener_setting, find_setting, nearest_names
from penstock.config.setting import SettingScope

MAX_CUSTOM_SETTINGS = 100  # of one resource; every broker gets all of them from the controller
MAX_NAME_LENGTH = 255
_MOST_WITH_NEAREST = 3  # about 3 ms each: compared with every known name
_PRINTABLE = re.compile(r"[!-~]+")  # ASCII without spaces: it is written to logs and terminals


def custom_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(is_custom, names))


def is_custom(name: str) -> bool:
    return find_setting(name, SettingScope.BROKER) is None and find_listener_setting(name) is None


def find_custom_name_problem(name: str) -> str | None:
    """Why `name` cannot be the name of a custom setting, or None."""
    if not name:
        return "a setting needs a name"
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"the name {name[:30]!r}... has {len(name)} characters, but the name of a custom "
            f"setting has at most {MAX_NAME_LENGTH}"
        )
    if _PRINTABLE.fullmatch(name) is None:
        return f"{name!r} is not a name: use printable ASCII characters and no spaces"
    return None


def inert_names(names: Iterable[str]) -> frozenset[str]:
    """Those that are known, but change nothing here."""
    return frozenset(
        name
        for name in names
        if (setting := find_setting(name, SettingScope.BROKER)) is not None and not setting.active
    )


def describe_inert_topics(configs: Mapping[str, Mapping[str, str]]) -> str | None:
    """One line about topics' stored configs that change nothing; None if there are none."""
    topics: dict[str, list[str]] = {}
    for topic, own in configs.items():
        for name in own:
            setting = find_setting(name, SettingScope.TOPIC)
            if setting is not None and not setting.active:
                topics.setdefault(name, []).append(topic)
    if not topics:
        return None
    named = ", ".join(
        f"{name} of {len(own)} topics, such as {own[0]}" for name, own in sorted(topics.items())
    )
    return (
        f"{len(topics)} settings of topics change nothing here: {named}; docs/configuration.md has "
        "the effect of every setting"
    )


def describe_no_effect(names: Iterable[str]) -> Iterator[str]:
    """Lines for the broker's log: a setting changes nothing, and which one may have been meant."""
    for number, name in enumerate(sorted(names)):
        yield _describe_no_effect(name, with_nearest=number < _MOST_WITH_NEAREST)


def _describe_no_effect(name: str, *, with_nearest: bool) -> str:
    nearest = nearest_names(name, SettingScope.BROKER) if with_nearest else []
    advice = f"did you mean {' or '.join(nearest)}?" if nearest else "delete it if unintended"
    return f"dynamic setting {name} is stored but has no effect: it is not known here; {advice}"
