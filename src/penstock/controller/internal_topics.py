"""What the topics of the coordinators must be like: their numbers, settings and what is refused.

Pure. They may be created by anybody, and are made in a way that the coordinators can rely on.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.config.effective_config import EffectiveConfig, SettingSource
from penstock.config.setting import format_value
from penstock.controller.interface import CreatableTopic

_TOPIC_MIN_IN_SYNC = "min.insync.replicas"
_MIN_IN_SYNC = "transaction.state.log.min.isr"

# Topic setting -> the broker setting that it is taken from, or the value itself after "=".
_OFFSETS = {
    "cleanup.policy": "=compact",
    "compression.type": "=producer",
    "segment.bytes": "offsets.topic.segment.bytes",
}
_TRANSACTIONS = {
    "cleanup.policy": "=compact",
    "compression.type": "=uncompressed",
    "unclean.leader.election.enable": "=false",
    _TOPIC_MIN_IN_SYNC: _MIN_IN_SYNC,
    "segment.bytes": "transaction.state.log.segment.bytes",
}
_CONFIGS = {"__consumer_offsets": _OFFSETS, "__transaction_state": _TRANSACTIONS}
_PREFIXES = {"__consumer_offsets": "offsets.topic", "__transaction_state": "transaction.state.log"}


def fill_in_defaults(asked: CreatableTopic, settings: EffectiveConfig) -> CreatableTopic:
    """Numbers and settings that were not given; other topics stay as they are."""
    if asked.name not in _CONFIGS:
        return asked
    own = _own_configs(_CONFIGS[asked.name], settings)
    if asked.assignment:
        return replace(asked, configs={**own, **asked.configs})
    prefix = _PREFIXES[asked.name]
    factor = _number(asked.replication_factor, settings, f"{prefix}.replication.factor")
    return replace(
        asked,
        configs={**own, **_in_sync_within(factor, own, settings), **asked.configs},
        partitions=_number(asked.partitions, settings, f"{prefix}.num.partitions"),
        replication_factor=factor,
    )


def find_conflict(topic: str, resolved: EffectiveConfig) -> str | None:
    """What in an internal topic's settings would lose what the coordinators keep in it."""
    policy = resolved["cleanup.policy"]
    if topic in _CONFIGS and policy != ("compact",):
        return (
            f"cleanup.policy must be compact, not {format_value(policy)}: a coordinator keeps its "
            f"state there"
        )
    return None


def _own_configs(wanted: Mapping[str, str], settings: EffectiveConfig) -> dict[str, str]:
    return {
        name: source[1:] if source.startswith("=") else format_value(settings[source])
        for name, source in wanted.items()
    }


def _in_sync_within(
    factor: int, own: Mapping[str, str], settings: EffectiveConfig
) -> dict[str, str]:
    """Where nobody said how many: one replica fewer than there are, as with the default of three,
    and one at least. Else a single broker could never write its transactions down."""
    is_default = settings.get_effective(_MIN_IN_SYNC).source is SettingSource.DEFAULT
    if _TOPIC_MIN_IN_SYNC not in own or not is_default:
        return {}
    return {_TOPIC_MIN_IN_SYNC: str(max(1, min(int(own[_TOPIC_MIN_IN_SYNC]), factor - 1)))}


def _number(asked: int, settings: EffectiveConfig, name: str) -> int:
    default = settings[name]
    assert isinstance(default, int)
    return default if asked == -1 else asked
