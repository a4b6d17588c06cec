"""The declarations as a whole."""

import re
from pathlib import Path

import pytest

import penstock
from penstock.config.document import document
from penstock.config.effective_config import resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.refused_names import find_refusal
from penstock.config.registry import BROKER_SETTINGS, TOPIC_SETTINGS, by_name, find_listener_setting
from penstock.config.setting import Setting, SettingKind, UpdateMode, Value
from penstock.config.zookeeper_security import SOURCE_NAMES as ZOOKEEPER_SOURCE_NAMES
from penstock.controller.internal_topics import _CONFIGS as INTERNAL_TOPICS
from penstock.controller.internal_topics import _PREFIXES as TOPIC_PREFIXES
from penstock.coordinators.deferred.config import _SOURCE_NAMES as DEFERRED_SOURCE_NAMES
from penstock.coordinators.group.config import _SOURCE_NAMES as GROUP_SOURCE_NAMES
from penstock.coordinators.transaction.config import _SOURCE_NAMES as TRANSACTION_SOURCE_NAMES

_ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
_INT_MAX = 2147483647
_LONG_MAX = 9223372036854775807

# Typed from Kafka's documentation, not from the declarations.
_KAFKAS_BROKER_DEFAULTS: dict[str, Value] = {
    "auto.create.topics.enable": True,
    "background.threads": 10,
    "broker.id": -1,
    "compression.type": "producer",
    "connections.max.idle.ms": 600_000,
    "controlled.shutdown.enable": True,
    "default.replication.factor": 1,
    "delete.topic.enable": True,
    "fetch.max.bytes": 57_671_680,
    "group.initial.rebalance.delay.ms": 3000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.max.size": _INT_MAX,
    "listeners": ("PLAINTEXT://:9092",),
    "log.cleaner.dedupe.buffer.size": 134_217_728,
    "log.cleaner.min.cleanable.ratio": 0.5,
    "log.dir": ("/tmp/kafka-logs",),
    "log.flush.interval.messages": _LONG_MAX,
    "log.retention.hours": 168,
    "log.retention.ms": None,
    "log.roll.hours": 168,
    "log.segment.bytes": 1_073_741_824,
    "message.max.bytes": 1_048_588,
    "min.insync.replicas": 1,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.partitions": 1,
    "offsets.retention.minutes": 10_080,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "queued.max.requests": 500,
    "replica.fetch.max.bytes": 1_048_576,
    "replica.lag.time.max.ms": 30_000,
    "sasl.enabled.mechanisms": ("GSSAPI",),
    "socket.request.max.bytes": 104_857_600,
    "ssl.client.auth": "none",
    "transaction.max.timeout.ms": 900_000,
    "transaction.state.log.min.isr": 2,
    "transactional.id.expiration.ms": 604_800_000,
    "unclean.leader.election.enable": False,
    "zookeeper.session.timeout.ms": 18_000,
}
_PENSTOCKS_OWN: dict[str, Value] = {
    "auto.balance.broker.gone.ms": 3_600_000,
    "auto.balance.concurrent.partitions": 10,
    "auto.balance.delay.ms": 60_000,
    "auto.balance.enable": False,
    "auto.balance.throttled.rate": 10_000_000,
    "controller.election": "race",
    "follower.reassignment.throttled.rate": _LONG_MAX,
    "group.coordinator.max.bytes": 268_435_456,
    "group.max.bytes": 67_108_864,
    "group.max.pending.members": 10_000,
    "group.member.max.bytes": 2_097_152,
    "group.member.max.partitions": 200_000,
    "group.member.max.protocols": 1000,
    "group.request.max.entries": 20_000,
    "leader.reassignment.throttled.rate": _LONG_MAX,
    "logging.format": "text",
    "logging.level": "INFO",
    "logging.slow.request.ms": 500,
    "logging.stall.ms": 200,
    "logging.pause.ms": 5_000,
    "metrics.listener": "",
    "metrics.names": "A",
    "metrics.otlp.endpoint": "",
    "metrics.otlp.interval.ms": 60_000,
    "metrics.partition.limit": 10_000,
    "dual.commit.enabled": False,
    "offsets.storage": "kafka",
    "penstock.max.decompressed.bytes": 32 * 1024 * 1024,
    "penstock.delay.ms": 0,
    "penstock.delayed.ended.retention.ms": 86_400_000,
    "penstock.delayed.max.ms": 30 * 86_400_000,
    "penstock.delayed.max.pending": 10_000_000,
    "penstock.delayed.messages": False,
    "penstock.delayed.topic.load.buffer.size": 5_242_880,
    "penstock.delayed.topic.min.isr": 2,
    "penstock.delayed.topic.num.partitions": 50,
    "penstock.delayed.topic.replication.factor": 3,
    "penstock.delayed.topic.segment.bytes": 104_857_600,
    "penstock.admin.password.file": None,
    "penstock.admin.user": None,
    "penstock.sasl.oauthbearer.algorithms": ("RS256", "PS256", "ES256"),
    "penstock.sasl.plain.without.tls": False,
    "penstock.audit.buffer.bytes": 16 * 1024 * 1024,
    "penstock.audit.enable": False,
    "penstock.audit.events": ("authentication", "denied", "admin"),
    "penstock.audit.excluded.principals": None,
    "penstock.audit.excluded.topics": (),
    "penstock.audit.topic.num.partitions": 3,
    "penstock.audit.topic.replication.factor": 3,
    "penstock.audit.topic.retention.ms": 90 * 86_400_000,
    "penstock.ssl.reload.interval.ms": 10_000,
    "penstock.zookeeper.sasl.jaas.config": None,
    "penstock.half.check.interval.ms": 30_000,
    "penstock.half.check.max.interval.ms": 960_000,
    "penstock.half.decided.retention.ms": 86_400_000,
    "penstock.half.expired.retention.ms": 7 * 86_400_000,
    "penstock.half.first.check.ms": 6_000,
    "penstock.half.groups": (),
    "penstock.half.max.checks": 15,
    "penstock.half.max.pending": 1_000_000,
    "penstock.table.format": "none",
    "penstock.table.partition.by": (),
    "penstock.table.registry.prefix": False,
    "penstock.table.schema": "",
    "penstock.table.upsert": False,
    "penstock.table.value": "raw",
    "penstock.validate.records": True,
    "replica.replacement.delay.ms": -1,
    "replica.lag.max.messages": -1,
    "send.method": "sendfile",
    "transaction.prepared.alarm.ms": 3_600_000,
    "storage.engine": "segmented",
    "storage.commitlog.file.bytes": 1_073_741_824,
    "storage.commitlog.min.live.ratio": 0.25,
}


@pytest.mark.parametrize("name", _KAFKAS_BROKER_DEFAULTS)
def test_a_well_known_default_is_kafkas(name: str) -> None:
    assert BROKER_SETTINGS[name].default == _KAFKAS_BROKER_DEFAULTS[name]


def test_every_topic_default_is_a_text_that_can_be_set_again() -> None:
    """A client that reads a topic's configs and writes them back cannot send a null."""
    for setting in TOPIC_SETTINGS.values():
        assert setting.default is not None, setting.name
        assert setting.parse(setting.format(setting.default)) == setting.default


def test_our_own_settings_are_marked_and_no_others() -> None:
    assert {setting.name: setting.default for setting in _ALL if setting.own} == _PENSTOCKS_OWN


def test_a_name_declared_twice_is_an_error() -> None:
    setting = BROKER_SETTINGS["log.dirs"]
    with pytest.raises(AssertionError, match=r"log\.dirs is declared twice"):
        by_name([setting, setting])


@pytest.mark.parametrize(
    "setting", [setting for setting in _ALL if setting.fallbacks], ids=lambda item: item.name
)
def test_every_fallback_is_a_broker_setting_of_a_fitting_kind(setting: Setting) -> None:
    whole = {SettingKind.SHORT, SettingKind.INT, SettingKind.LONG}
    for fallback in setting.fallbacks:
        other = BROKER_SETTINGS[fallback.name]
        assert other.kind is setting.kind or {other.kind, setting.kind} <= whole
        assert other.active == setting.active


@pytest.mark.parametrize("setting", TOPIC_SETTINGS.values(), ids=lambda item: item.name)
def test_a_topic_default_equals_its_broker_default(setting: Setting) -> None:
    broker = resolve_broker()
    defaults = {synonym.convert(broker[synonym.name]) for synonym in setting.fallbacks}
    assert defaults - {None} <= {setting.default}
    assert not setting.fallbacks or setting.default in defaults


def test_active_settings_are_exactly_those_that_are_read() -> None:
    topic_names = set(LogConfig.SOURCE_NAMES.values()) | (_names_read() & TOPIC_SETTINGS.keys())
    broker_names = set(StorageConfig.SOURCE_NAMES.values()) | (
        _names_read() & BROKER_SETTINGS.keys()
    )
    readers = [*map(TOPIC_SETTINGS.get, topic_names), *map(BROKER_SETTINGS.get, broker_names)]
    for reader in filter(None, readers):
        broker_names |= {fallback.name for fallback in reader.fallbacks}
    assert {setting.name for setting in TOPIC_SETTINGS.values() if setting.active} == topic_names
    assert {setting.name for setting in BROKER_SETTINGS.values() if setting.active} == broker_names


def _names_read() -> set[str]:
    """Return the name of every setting that code outside `config` reads.

    That is `config["some.name"]`, `config.get_int("some.name")`, and names that are passed to a
    function which reads them.
    """
    source = Path(penstock.__file__).parent
    own = (source / "config", source / "client" / "security")  # of brokers, of clients
    paths = (path for path in source.rglob("*.py") if path.parent not in own)
    read = re.compile(
        r'(?:\["|_[a-z]+\(\s*(?:(?:resolved|config), )?")([a-z]+(?:\.[a-z0-9]+)+)"\s*[\])]'
    )
    names = {name for path in paths for name in read.findall(path.read_text())}
    by_name = {
        *DEFERRED_SOURCE_NAMES.values(),
        *GROUP_SOURCE_NAMES.values(),
        *TRANSACTION_SOURCE_NAMES.values(),
        *ZOOKEEPER_SOURCE_NAMES,
    }
    of_topics = {name for topic in INTERNAL_TOPICS.values() for name in topic.values()}
    factors = {f"{prefix}.replication.factor" for prefix in TOPIC_PREFIXES.values()}
    counts = {f"{prefix}.num.partitions" for prefix in TOPIC_PREFIXES.values()}
    return names | by_name | of_topics | factors | counts


def test_every_setting_without_effect_says_why() -> None:
    reasons = ("accepted, not yet in effect", "accepted, no effect: ")
    silent = [
        setting.name
        for setting in _ALL
        if not (setting.active or setting.effect.startswith(reasons))
    ]
    assert silent == []


def test_every_setting_is_described_in_a_sentence() -> None:
    assert [setting.name for setting in _ALL if not setting.doc.endswith(".")] == []


def test_settings_of_files_classes_and_logins_are_read_only() -> None:
    endings = (".location", ".file", ".url", ".path", ".class", ".class.name", ".cmd")
    dangerous = {setting.name for setting in _ALL if setting.kind is SettingKind.CLASS}
    dangerous |= {setting.name for setting in _ALL if setting.name.endswith(endings)}
    dangerous |= {"log.dir", "log.dirs", "metric.reporters", "sasl.jaas.config"}
    changeable = {setting.name for setting in _ALL if setting.update is not UpdateMode.READ_ONLY}
    assert len(dangerous) > 20
    assert dangerous & changeable == set()


def test_passwords_and_keys_are_sensitive() -> None:
    for setting in _ALL:
        if setting.name.endswith((".password", ".secret", "jaas.config", ".passphrase")):
            assert setting.sensitive, setting.name


def test_no_declared_setting_is_on_the_list_of_refused_ones() -> None:
    assert [name for name in BROKER_SETTINGS if find_refusal(name)] == []


def test_a_listener_prefix_hides_a_setting_with_or_without_a_mechanism() -> None:
    plain = find_listener_setting("listener.name.internal.ssl.client.auth")
    nested = find_listener_setting("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config")
    assert plain is BROKER_SETTINGS["ssl.client.auth"]
    assert nested is BROKER_SETTINGS["sasl.jaas.config"]
    assert find_listener_setting("listener.name.internal.unknown") is None
    assert find_listener_setting("ssl.client.auth") is None


def test_the_document_names_every_setting() -> None:
    page = document()
    assert [setting.name for setting in _ALL if f"- `{setting.name}`" not in page] == []
