"""Short hands with which the declaration modules write one setting a line. No settings here."""

from penstock.config.check import ANYTHING, Check
from penstock.config.setting import ACTIVE, Fallback, Kind, Scope, Setting, UpdateMode, Value

MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def broker(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    check: Check = ANYTHING,
    *,
    effect: str = ACTIVE,
    update: UpdateMode = UpdateMode.READ_ONLY,
    fallbacks: tuple[Fallback, ...] = (),
    own: bool = False,
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope=Scope.BROKER,
        check=check,
        effect=effect,
        update=update,
        fallbacks=fallbacks,
        own=own,
    )


def topic(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    check: Check = ANYTHING,
    *,
    synonyms: tuple[Fallback, ...] = (),
    effect: str = ACTIVE,
    own: bool = False,
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope=Scope.TOPIC,
        check=check,
        effect=effect,
        update=UpdateMode.CLUSTER_WIDE,
        fallbacks=synonyms,
        own=own,
    )


def named(*names: str) -> tuple[Fallback, ...]:
    """Fallbacks in the same unit."""
    return tuple(Fallback(name=name) for name in names)


def scaled_by(multiplier: int, name: str) -> tuple[Fallback, ...]:
    """A fallback in a larger unit."""
    return (Fallback(name=name, multiplier=multiplier),)
