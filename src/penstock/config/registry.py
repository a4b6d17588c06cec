"""All settings by name. Every name is declared once per scope, which is checked on import."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from penstock.config import (
    broker_audit,
    broker_authorization,
    broker_delayed,
    broker_groups,
    broker_log,
    broker_network,
    broker_quotas,
    broker_replication,
    broker_sasl,
    broker_security,
    broker_server,
    broker_transactions,
    broker_zookeeper,
)
from penstock.config.group_settings import GROUP_SETTINGS as _GROUP_SETTINGS
from penstock.config.inert_settings import inert_settings, inert_topic_settings
from penstock.config.setting import Setting, SettingScope
from penstock.config.table_settings import TABLE_SETTINGS
from penstock.config.topic_settings import TOPIC_SETTINGS as _TOPIC_SETTINGS

# Heading of the documentation -> the settings that take effect, in the order of the page.
_ACTIVE: Mapping[str, tuple[Setting, ...]] = MappingProxyType(
    {
        "Server": broker_server.SETTINGS,
        "Network": broker_network.SETTINGS,
        "Log": broker_log.SETTINGS,
        "Replication": broker_replication.SETTINGS,
        "ZooKeeper": broker_zookeeper.SETTINGS,
        "Groups and offsets": broker_groups.SETTINGS,
        "Transactions": broker_transactions.SETTINGS,
        "Messages that wait": broker_delayed.SETTINGS,
        "Quotas": broker_quotas.SETTINGS,
        "Audit": broker_audit.SETTINGS,
        "Security": (
            *broker_security.SETTINGS,
            *broker_sasl.SETTINGS,
            *broker_authorization.SETTINGS,
        ),
    }
)
# Themes without a setting that takes effect come last.
BROKER_THEMES: Mapping[str, tuple[Setting, ...]] = MappingProxyType(
    {
        theme: (*_ACTIVE.get(theme, ()), *inert_settings().get(theme, ()))
        for theme in dict.fromkeys((*_ACTIVE, *inert_settings()))
    }
)


def by_name(settings: Iterable[Setting]) -> Mapping[str, Setting]:
    """The settings under their names; each name must be declared once."""
    named: dict[str, Setting] = {}
    for setting in settings:
        assert setting.name not in named, f"{setting.name} is declared twice"
        named[setting.name] = setting
    return MappingProxyType(named)


BROKER_SETTINGS = by_name(setting for theme in BROKER_THEMES.values() for setting in theme)
TOPIC_SETTINGS = by_name((*_TOPIC_SETTINGS, *TABLE_SETTINGS, *inert_topic_settings()))
GROUP_SETTINGS = by_name(_GROUP_SETTINGS)


def settings_of(scope: SettingScope) -> Mapping[str, Setting]:
    if scope is SettingScope.GROUP:
        return GROUP_SETTINGS
    return BROKER_SETTINGS if scope is SettingScope.BROKER else TOPIC_SETTINGS


def find_setting(name: str, scope: SettingScope) -> Setting | None:
    return settings_of(scope).get(name)


def find_listener_setting(name: str) -> Setting | None:
    """The setting behind `listener.name.<listener>.[<mechanism>.]<setting>`, or None."""
    if not name.startswith("listener.name."):
        return None
    parts = name.removeprefix("listener.name.").split(".")
    candidates = (".".join(parts[start:]) for start in (1, 2))
    return next(
        (BROKER_SETTINGS[candidate] for candidate in candidates if candidate in BROKER_SETTINGS),
        None,
    )


def nearest_names(name: str, scope: SettingScope) -> list[str]:
    """Up to three known names: the other scope's name of the same setting, else similar names."""
    from difflib import get_close_matches  # needed only after a misspelt name

    counterparts = _counterparts(name, scope)
    return counterparts or get_close_matches(name, settings_of(scope), n=3, cutoff=0.75)


def _counterparts(name: str, scope: SettingScope) -> list[str]:
    if scope is not SettingScope.BROKER:
        return [
            setting.name
            for setting in settings_of(scope).values()
            if any(synonym.name == name for synonym in setting.fallbacks)
        ]
    topic_setting = TOPIC_SETTINGS.get(name)
    return [synonym.name for synonym in topic_setting.fallbacks[:1]] if topic_setting else []
