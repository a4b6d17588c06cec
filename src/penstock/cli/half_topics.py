"""Makes the topics for half messages beside a topic."""

from collections.abc import Mapping, Sequence

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.protocol.half_headers import (
    CHECKS_SUFFIX,
    DECISIONS_SUFFIX,
    EXPIRED_SUFFIX,
    HALF_SUFFIX,
    is_legal_group,
)

_GROUPS = "penstock.half.groups"
_KEPT_MS = str(30 * 86_400_000)  # longer than a shard could be away; values are kept elsewhere


async def create_half_topics(client: ClusterClient, topic: str, groups: Sequence[str]) -> None:
    """With as many partitions and replicas as the topic. The topic of halves comes last, because
    it is what brokers look at."""
    for group in groups:
        if not is_legal_group(group):
            raise RefusedByBroker(f"group {group!r}", ErrorCode.INVALID_GROUP_ID)
    described = (await client.metadata([topic])).topics[topic]
    described.check()
    partitions = len(described.partitions)
    factor = len(described.partitions[0].replicas)
    bound = {_GROUPS: ",".join(groups), "retention.ms": _KEPT_MS, "cleanup.policy": "delete"}
    plain = {"cleanup.policy": "delete"}
    wanted: list[tuple[str, Mapping[str, str]]] = [
        *((f"{group}{CHECKS_SUFFIX}", plain) for group in groups),
        (topic + EXPIRED_SUFFIX, plain),
        (topic + DECISIONS_SUFFIX, bound),
        (topic + HALF_SUFFIX, bound),
    ]
    for name, configs in wanted:
        await _create(client, NewTopic(name, partitions, factor, configs=configs))


async def _create(client: ClusterClient, topic: NewTopic) -> None:
    try:
        await client.admin.create_topics([topic])
    except RefusedByBroker as error:
        # Others are there if an attempt ended half way, or another topic has the same group.
        is_last = topic.name.endswith(HALF_SUFFIX)
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or is_last:
            raise
