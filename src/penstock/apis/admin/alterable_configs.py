"""The settings that clients may change.

An allow-list: a setting that names a class, a file or an address can be set only in the broker's
own file, whatever Kafka lets clients do.
"""

from penstock.config.registry import find_listener_setting, find_setting
from penstock.config.setting import Setting, SettingKind, SettingScope, UpdateMode
from penstock.model.errors import ErrorCode, Refusal

_PLAIN_KINDS = frozenset(
    (SettingKind.BOOLEAN, SettingKind.SHORT, SettingKind.INT, SettingKind.LONG, SettingKind.DOUBLE)
)
# Broker texts that cannot be a class, file or address: their values are enumerated.
_PLAIN_TEXTS = frozenset(
    (
        "compression.type",
        "log.cleanup.policy",
        "log.message.timestamp.type",
        "max.connections.per.ip.overrides",
    )
)


def is_alterable(setting: Setting) -> bool:
    if setting.update is UpdateMode.READ_ONLY:
        return False
    if setting.kind in _PLAIN_KINDS:
        return True
    if setting.scope is SettingScope.TOPIC:
        return setting.kind in (SettingKind.STRING, SettingKind.LIST)
    return setting.name in _PLAIN_TEXTS


def find_refusal(name: str, scope: SettingScope) -> Refusal | None:
    """Why clients may not change a setting. Unknown settings are refused later, where changes are
    validated, with similar names."""
    setting = find_setting(name, scope)
    if setting is None and scope is SettingScope.BROKER:
        setting = find_listener_setting(name)
    if setting is None or is_alterable(setting):
        return None
    if setting.update is UpdateMode.READ_ONLY:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{name} is read-only: set it in the broker's file and restart the broker",
        )
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"{name} may name a class, a file, an address or a secret, and clients may not change "
        "such settings: set it in the broker's file and restart the broker",
    )
