"""Shorthands with which the declaration modules write settings. No settings here."""

from penstock.config.check import ANYTHING, ValueCheck
from penstock.config.setting import (
    ACTIVE,
    FallbackSetting,
    Setting,
    SettingKind,
    SettingScope,
    UpdateMode,
    Value,
)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def broker(
    name: str,
    kind: SettingKind,
    default: Value,
    doc: str,
    check: ValueCheck = ANYTHING,
    *,
    effect: str = ACTIVE,
    update: UpdateMode = UpdateMode.READ_ONLY,
    fallbacks: tuple[FallbackSetting, ...] = (),
    own: bool = False,
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope=SettingScope.BROKER,
        check=check,
        effect=effect,
        update=update,
        fallbacks=fallbacks,
        own=own,
    )


def topic(
    name: str,
    kind: SettingKind,
    default: Value,
    doc: str,
    check: ValueCheck = ANYTHING,
    *,
    synonyms: tuple[FallbackSetting, ...] = (),
    own: bool = False,
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope=SettingScope.TOPIC,
        check=check,
        update=UpdateMode.CLUSTER_WIDE,
        fallbacks=synonyms,
        own=own,
    )


def group(
    name: str,
    kind: SettingKind,
    default: Value,
    doc: str,
    check: ValueCheck = ANYTHING,
    *,
    synonyms: tuple[FallbackSetting, ...] = (),
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope=SettingScope.GROUP,
        check=check,
        update=UpdateMode.CLUSTER_WIDE,
        fallbacks=synonyms,
    )


def named(*names: str) -> tuple[FallbackSetting, ...]:
    """Fallbacks in the same unit."""
    return tuple(FallbackSetting(name=name) for name in names)


def scaled_by(multiplier: int, name: str) -> tuple[FallbackSetting, ...]:
    """A fallback in a larger unit."""
    return (FallbackSetting(name=name, multiplier=multiplier),)
