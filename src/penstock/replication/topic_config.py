"""A topic's effective config as replication needs it, resolved once per change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.config.effective_config import EffectiveConfig, resolve_topic
from penstock.config.log_config import LogConfig
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig
from penstock.config.setting import LONG_MAX
from penstock.logs.event_logger import EventLogger
from penstock.replication.throttle import NO_REPLICAS, ReplicaSet, parse_replicas

MAX_CACHED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    min_in_sync: int  # replicas that acks=all requires (min.insync.replicas)
    is_synchronous: bool  # a write counts once every in-sync replica has flushed it
    log: LogConfig  # the topic's own: what its logs are opened with at start-up
    served: LogConfig  # what storage gets once a replica is served
    throttled_sending: ReplicaSet = NO_REPLICAS
    throttled_fetching: ReplicaSet = NO_REPLICAS

    @classmethod
    def of(cls, config: LogConfig, min_in_sync: int) -> "TopicConfig":
        """ReplicaManager flushes a synchronous topic, because it knows which writes wait for the
        flush. Storage must not start one of its own, or the awaited flush queues behind it."""
        is_synchronous = config.flush_messages == 1
        return cls(
            min_in_sync=min_in_sync,
            is_synchronous=is_synchronous,
            log=config,
            served=replace(config, flush_messages=LONG_MAX) if is_synchronous else config,
        )


class TopicConfigs:
    """Topic configs by their overrides: most topics have the same ones, and resolving is slow."""

    def __init__(
        self, effective_config: Callable[[], EffectiveConfig], logger: EventLogger
    ) -> None:
        self._effective_config = effective_config
        self._logger = logger
        self._broker: EffectiveConfig | None = None  # for which the cached configs hold
        self._cached: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def resolve(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        broker = self._effective_config()
        if broker is not self._broker or len(self._cached) >= MAX_CACHED:
            self._cached.clear()
            self._broker = broker
        key = frozenset(overrides.items())
        if key not in self._cached:
            self._cached[key] = resolve_topic_config(topic, overrides, broker, self._logger)
        return self._cached[key]

    def keep(self, config: LogConfig) -> TopicConfig:
        """The config of a log whose topic is not in the metadata yet: as storage has opened it."""
        return TopicConfig.of(config, _min_in_sync(self._effective_config()))


def resolve_topic_config(
    topic: str, overrides: Mapping[str, str], broker: EffectiveConfig, logger: EventLogger
) -> TopicConfig:
    """Overrides that have become invalid are reported and ignored."""
    try:
        config = resolve_topic(RawConfig.from_mapping(overrides, where=f"topic {topic}"), broker)
    except ConfigError as error:
        # Valid when they were stored, perhaps beside other broker settings than today's.
        logger.warning(
            "topic_configs_ignored",
            f"{error}\n  topic {topic} uses the broker's settings until its own are corrected",
        )
        config = resolve_topic(EMPTY_RAW_CONFIG, broker)
    return replace(
        TopicConfig.of(LogConfig.from_topic(config), _min_in_sync(config)),
        throttled_sending=_replicas(config, "leader.replication.throttled.replicas"),
        throttled_fetching=_replicas(config, "follower.replication.throttled.replicas"),
    )


def _replicas(config: EffectiveConfig, name: str) -> ReplicaSet:
    named = config.get_list(name)
    return parse_replicas(named) if named else NO_REPLICAS


def _min_in_sync(config: EffectiveConfig) -> int:
    """A topic's, or the broker's: the setting has the same name."""
    return config.get_int("min.insync.replicas")
