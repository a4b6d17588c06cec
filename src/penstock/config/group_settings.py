"""Settings of one consumer group (KIP-848), each with the broker setting that it falls back to."""

from penstock.config.check import at_least
from penstock.config.declare import group, named
from penstock.config.setting import Setting, SettingKind

SESSION_TIMEOUT_MS = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS = "consumer.heartbeat.interval.ms"

GROUP_SETTINGS: tuple[Setting, ...] = (
    group(
        SESSION_TIMEOUT_MS,
        SettingKind.INT,
        45_000,
        "Silence after which a member of this group is out.",
        at_least(1),
        synonyms=named("group.consumer.session.timeout.ms"),
    ),
    group(
        HEARTBEAT_INTERVAL_MS,
        SettingKind.INT,
        5000,
        "Time between two heartbeats of a member of this group.",
        at_least(1),
        synonyms=named("group.consumer.heartbeat.interval.ms"),
    ),
)
