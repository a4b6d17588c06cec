"""Broker settings of the audit trail, and the topic that it is written to. All are read-only: no
client can change what is audited."""

from penstock.config.broker_authorization import PRINCIPALS
from penstock.config.check import at_least, subset_of
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind

AUDIT_EVENTS = ("authentication", "denied", "admin")
_MIB = 1_048_576
_DAY_MS = 86_400_000

SETTINGS: tuple[Setting, ...] = (
    broker(
        "penstock.audit.enable",
        SettingKind.BOOLEAN,
        False,
        "Whether the audit trail is written to the topic __penstock_audit (docs/audit.md).",
        own=True,
    ),
    broker(
        "penstock.audit.events",
        SettingKind.LIST,
        AUDIT_EVENTS,
        "What is audited: authentication, denied requests, changes by admin requests.",
        subset_of(*AUDIT_EVENTS),
        own=True,
    ),
    broker(
        "penstock.audit.excluded.principals",
        SettingKind.STRING,
        None,
        "Principals whose events are left out, as User:a;User:b.",
        PRINCIPALS,
        own=True,
    ),
    broker(
        "penstock.audit.excluded.topics",
        SettingKind.LIST,
        (),
        "Topics whose events are left out.",
        own=True,
    ),
    broker(
        "penstock.audit.buffer.bytes",
        SettingKind.INT,
        16 * _MIB,
        "Events that are not written yet; above it new ones are dropped and counted.",
        at_least(_MIB),
        own=True,
    ),
    broker(
        "penstock.audit.topic.num.partitions",
        SettingKind.INT,
        3,
        "Partitions of the audit topic; each broker prefers one that it leads.",
        at_least(1),
        own=True,
    ),
    broker(
        "penstock.audit.topic.replication.factor",
        SettingKind.SHORT,
        3,
        "Replicas of the audit topic.",
        at_least(1),
        own=True,
    ),
    broker(
        "penstock.audit.topic.retention.ms",
        SettingKind.LONG,
        90 * _DAY_MS,
        "Age at which events are deleted; -1 keeps them.",
        at_least(-1),
        own=True,
    ),
)
