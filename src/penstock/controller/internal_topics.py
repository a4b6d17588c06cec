"""Configs of the internal topics: partitions, replication factor, defaults and forbidden values.

Pure. Any client may create them; they get the configs that the coordinators rely on.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.config.effective_config import EffectiveConfig, SettingSource
from penstock.config.setting import format_value
from penstock.controller.interface import CreatableTopic
from penstock.model.cluster import AUDIT_TOPIC, DEFERRED_TOPIC

_TOPIC_MIN_IN_SYNC = "min.insync.replicas"

# Topic config -> the broker config that it is taken from, or the value itself after "=".
_OFFSETS = {
    "cleanup.policy": "=compact",
    "compression.type": "=producer",
    "segment.bytes": "offsets.topic.segment.bytes",
}
_TRANSACTIONS = {
    "cleanup.policy": "=compact",
    "compression.type": "=uncompressed",
    "unclean.leader.election.enable": "=false",
    _TOPIC_MIN_IN_SYNC: "transaction.state.log.min.isr",
    "segment.bytes": "transaction.state.log.segment.bytes",
}
_DEFERRED = {
    "cleanup.policy": "=compact",
    "compression.type": "=producer",
    "unclean.leader.election.enable": "=false",
    _TOPIC_MIN_IN_SYNC: "penstock.delayed.topic.min.isr",
    "segment.bytes": "penstock.delayed.topic.segment.bytes",
    # A decision is one batch, with all messages of a produced batch, uncompressed.
    "max.message.bytes": "penstock.delayed.topic.segment.bytes",
}
_AUDIT = {
    "cleanup.policy": "=delete",
    "compression.type": "=producer",
    "unclean.leader.election.enable": "=false",
    "retention.ms": "penstock.audit.topic.retention.ms",
}
_CONFIGS = {
    "__consumer_offsets": _OFFSETS,
    "__transaction_state": _TRANSACTIONS,
    DEFERRED_TOPIC: _DEFERRED,
    AUDIT_TOPIC: _AUDIT,
}
_PREFIXES = {
    "__consumer_offsets": "offsets.topic",
    "__transaction_state": "transaction.state.log",
    DEFERRED_TOPIC: "penstock.delayed.topic",
    AUDIT_TOPIC: "penstock.audit.topic",
}


def fill_in_defaults(topic: CreatableTopic, broker_config: EffectiveConfig) -> CreatableTopic:
    """Fills in what the request leaves out; topics that are not internal stay as they are."""
    if topic.name not in _CONFIGS:
        return topic
    sources = _CONFIGS[topic.name]
    own = _own_configs(sources, broker_config)
    if topic.assignment:
        return replace(topic, configs={**own, **topic.configs})
    prefix = _PREFIXES[topic.name]
    factor = _or_default(topic.replication_factor, broker_config, f"{prefix}.replication.factor")
    return replace(
        topic,
        configs={**own, **_min_isr_within(factor, sources, broker_config), **topic.configs},
        partitions=_or_default(topic.partitions, broker_config, f"{prefix}.num.partitions"),
        replication_factor=factor,
    )


def is_internal(topic: str) -> bool:
    return topic in _CONFIGS


def is_state(topic: str) -> bool:
    """Coordinators keep their state in it, so the last record of each key has to stay."""
    return topic in _CONFIGS and topic != AUDIT_TOPIC


def find_conflict(topic: str, config: EffectiveConfig) -> str | None:
    """A config with which an internal topic would lose coordinator state."""
    if topic in _CONFIGS and config["penstock.delayed.messages"]:
        return "penstock.delayed.messages must be false: clients do not produce to internal topics"
    policy = config["cleanup.policy"]
    if config["penstock.half.groups"]:
        if not topic.endswith((".half", ".half.decisions")):
            return (
                "penstock.half.groups is for topics T.half and T.half.decisions; "
                "`penstock topic create T --half` makes them"
            )
        if topic.removesuffix(".decisions").removesuffix(".half") in _CONFIGS:
            return "an internal topic has no half messages: clients do not write to it"
        if policy != ("delete",):
            return "penstock.half.groups needs cleanup.policy = delete: compaction keeps the last"
    if topic == AUDIT_TOPIC and policy != ("delete",):
        return "cleanup.policy must be delete: audit events have no keys"
    if is_state(topic) and policy != ("compact",):
        return (
            f"cleanup.policy must be compact, not {format_value(policy)}: the topic holds "
            f"coordinator state"
        )
    return None


def _own_configs(sources: Mapping[str, str], broker_config: EffectiveConfig) -> dict[str, str]:
    return {
        name: source[1:] if source.startswith("=") else format_value(broker_config[source])
        for name, source in sources.items()
    }


def _min_isr_within(
    factor: int, sources: Mapping[str, str], broker_config: EffectiveConfig
) -> dict[str, str]:
    """Lower min.insync.replicas, unless configured, to one less than the replication factor, as
    with the default of three, but at least one. Otherwise a single broker could never write
    transaction state."""
    name = sources.get(_TOPIC_MIN_IN_SYNC)
    if name is None or broker_config.get_effective(name).source is not SettingSource.DEFAULT:
        return {}
    return {_TOPIC_MIN_IN_SYNC: str(max(1, min(broker_config.get_int(name), factor - 1)))}


def _or_default(number: int, broker_config: EffectiveConfig, name: str) -> int:
    return broker_config.get_int(name) if number == -1 else number
