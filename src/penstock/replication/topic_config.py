"""What a topic's settings mean for its replicas here, worked out once for each change of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.config.effective_config import EffectiveConfig, resolve_topic
from penstock.config.log_config import LogConfig
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig
from penstock.config.setting import LONG_MAX
from penstock.replication.throttle import NO_REPLICAS, ReplicaSet, parse_replicas

Report = Callable[[str], None]

MAX_REMEMBERED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    min_in_sync: int  # replicas that acks=all asks for
    is_synchronous: bool  # a write counts once it is on the disk, of every replica
    log: LogConfig  # as the topic has it: what its logs are opened with at a start
    served: LogConfig  # as storage gets it once a replica is served
    throttled_sending: ReplicaSet = NO_REPLICAS
    throttled_fetching: ReplicaSet = NO_REPLICAS

    @classmethod
    def of(cls, config: LogConfig, min_in_sync: int) -> "TopicConfig":
        """A synchronous topic is flushed from here, where somebody waits for it. Storage must not
        begin a flush of its own before: the one that is waited for would have to queue behind."""
        is_synchronous = config.flush_messages == 1
        return cls(
            min_in_sync=min_in_sync,
            is_synchronous=is_synchronous,
            log=config,
            served=replace(config, flush_messages=LONG_MAX) if is_synchronous else config,
        )


class TopicConfigs:
    """Rules by settings: most topics share theirs, and to resolve them takes a while."""

    def __init__(self, effective_config: Callable[[], EffectiveConfig], report: Report) -> None:
        self._effective_config = effective_config
        self._report = report
        self._broker: EffectiveConfig | None = None  # for which the rules below hold
        self._rules: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def resolve(self, topic: str, configs: Mapping[str, str]) -> TopicConfig:
        broker = self._effective_config()
        if broker is not self._broker or len(self._rules) >= MAX_REMEMBERED:
            self._rules.clear()
            self._broker = broker
        key = frozenset(configs.items())
        if key not in self._rules:
            self._rules[key] = resolve_topic_config(topic, configs, broker, self._report)
        return self._rules[key]

    def keep(self, config: LogConfig) -> TopicConfig:
        """For a log whose topic is not known yet: as storage has opened it."""
        return TopicConfig.of(config, _min_in_sync(self._effective_config()))


def resolve_topic_config(
    topic: str, configs: Mapping[str, str], broker: EffectiveConfig, report: Report
) -> TopicConfig:
    """Settings that do not hold together any more are reported and left out."""
    try:
        resolved = resolve_topic(RawConfig.from_mapping(configs, where=f"topic {topic}"), broker)
    except ConfigError as error:
        # They were checked when they were stored, perhaps beside other settings of the broker.
        report(f"{error}\n  topic {topic} runs with the broker's settings until they are mended")
        resolved = resolve_topic(EMPTY_RAW_CONFIG, broker)
    rules = TopicConfig.of(LogConfig.from_topic(resolved), _min_in_sync(resolved))
    return replace(
        rules,
        throttled_sending=_replicas(resolved, "leader.replication.throttled.replicas"),
        throttled_fetching=_replicas(resolved, "follower.replication.throttled.replicas"),
    )


def _replicas(resolved: Mapping[str, Any], name: str) -> ReplicaSet:
    named = resolved[name]
    return parse_replicas(named) if named else NO_REPLICAS


def _min_in_sync(resolved: Mapping[str, Any]) -> int:
    """Of a topic's or a broker's settings: the name is the same."""
    return int(resolved["min.insync.replicas"])
