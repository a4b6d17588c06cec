"""Checks shared by the controller's requests: Kafka's error codes with their messages. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from penstock.config.effective_config import EffectiveConfig, resolve_topic
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.controller.interface import ApiError
from penstock.controller.internal_topics import find_conflict
from penstock.controller.state import ClusterState
from penstock.model.cluster import PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition

MAX_MESSAGE_LENGTH = 1000


def to_api_error(refusal: Refusal) -> ApiError:
    message = refusal.message or refusal.code.message
    if len(message) > MAX_MESSAGE_LENGTH:  # it may quote the request, which has any size
        message = f"{message[:MAX_MESSAGE_LENGTH]}..."
    return ApiError(refusal.code, message)


def invalid_config(error: ConfigError) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, "; ".join(error.problems))


def unknown_topic(state: ClusterState, name: str) -> Refusal:
    why = "is being deleted" if name in state.deleting else "does not exist"
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:249]!r} {why}")


def get_partition(state: ClusterState, tp: TopicPartition) -> PartitionState:
    """Refusal also for a topic that is being deleted."""
    topic = state.find_topic(tp.topic)
    if topic is None:
        raise unknown_topic(state, tp.topic)
    if not 0 <= tp.partition < len(topic.partitions):
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name} has {len(topic.partitions)} partitions, and no {tp.partition}",
        )
    return topic.partitions[tp.partition]


def find_duplicates(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def check_named_once(name: str, duplicates: Collection[str]) -> None:
    if name in duplicates:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"topic {name[:249]} is named more than once in the request"
        )


def check_topic_configs(
    topic: str, configs: Mapping[str, str], broker_config: EffectiveConfig
) -> EffectiveConfig:
    try:
        config = resolve_topic(
            RawConfig.from_mapping(configs, where=f"topic {topic}"), broker_config
        )
    except ConfigError as error:
        raise invalid_config(error) from None
    conflict = find_conflict(topic, config)
    if conflict is not None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"topic {topic}: {conflict}")
    return config
