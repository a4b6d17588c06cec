"""Broker settings of client quotas: the windows in which their use is counted."""

from penstock.config.check import at_least
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind

_SAMPLES, _SECONDS = 11, 1

SETTINGS: tuple[Setting, ...] = (
    broker(
        "quota.window.num",
        SettingKind.INT,
        _SAMPLES,
        "Samples kept of what a client has used of its quotas.",
        at_least(1),
    ),
    broker(
        "quota.window.size.seconds",
        SettingKind.INT,
        _SECONDS,
        "Length of such a sample.",
        at_least(1),
    ),
    broker(
        "controller.quota.window.num",
        SettingKind.INT,
        _SAMPLES,
        "Samples for which a client may save up what it does not use of controller_mutation_rate.",
        at_least(1),
    ),
    broker(
        "controller.quota.window.size.seconds",
        SettingKind.INT,
        _SECONDS,
        "Length of such a sample.",
        at_least(1),
    ),
)
