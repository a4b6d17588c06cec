"""Why something asked of the controller is not done: Kafka's codes, and words for people. Pure."""

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


def refused(refusal: Refusal) -> ApiError:
    message = refusal.message or refusal.code.message
    if len(message) > MAX_MESSAGE_LENGTH:  # what was asked for may be quoted, whatever its size
        message = f"{message[:MAX_MESSAGE_LENGTH]}..."
    return ApiError(refusal.code, message)


def invalid_config(error: ConfigError) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, "; ".join(error.problems))


def unknown_topic(state: ClusterState, name: str) -> Refusal:
    why = "is being deleted" if name in state.deleting else "does not exist"
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:249]!r} {why}")


def get_partition(state: ClusterState, name: TopicPartition) -> PartitionState:
    """Of a topic that is not being deleted."""
    topic = state.find_topic(name.topic)
    if topic is None:
        raise unknown_topic(state, name.topic)
    if not 0 <= name.partition < len(topic.partitions):
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name} has {len(topic.partitions)} partitions, and no {name.partition}",
        )
    return topic.partitions[name.partition]


def named_twice(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def refuse_twice(name: str, twice: Collection[str]) -> None:
    if name in twice:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"topic {name[:249]} is named more than once in the request"
        )


def check_topic_configs(
    topic: str, configs: Mapping[str, str], settings: EffectiveConfig
) -> EffectiveConfig:
    try:
        resolved = resolve_topic(RawConfig.from_mapping(configs, where=f"topic {topic}"), settings)
    except ConfigError as error:
        raise invalid_config(error) from None
    conflict = find_conflict(topic, resolved)
    if conflict is not None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"topic {topic}: {conflict}")
    return resolved
