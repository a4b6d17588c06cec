"""Asks all brokers for the bytes of their replicas, with Kafka's DescribeLogDirs, for the balancer.

A broker that does not answer in time is left out: the others have replicas of most of its
partitions.
"""

import asyncio
from collections.abc import Mapping, Sequence

from penstock.client.call import Call
from penstock.inter_broker.broker_connections import BrokerCalls
from penstock.model.cluster import BrokerNode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

TIMEOUT_MS = 30_000


class ReplicaSizes:
    """A `controller.balancing.ReadsReplicaSizes` over the inter-broker listener."""

    def __init__(self, connections: BrokerCalls) -> None:
        self._connections = connections

    async def replica_sizes(self, brokers: Sequence[BrokerNode]) -> Mapping[TopicPartition, int]:
        answers = await asyncio.gather(*map(self._ask, brokers))
        sizes: dict[TopicPartition, int] = {}
        for answer in answers:
            for tp, size_bytes in answer.items():
                sizes[tp] = max(sizes.get(tp, 0), size_bytes)
        return sizes

    async def _ask(self, node: BrokerNode) -> Mapping[TopicPartition, int]:
        call = Call(ApiKey.DESCRIBE_LOG_DIRS, range(1, 5), {"topics": None})
        try:
            answer = await self._connections.call(node, call, timeout_ms=TIMEOUT_MS)
        except ConnectionError:
            return {}
        return {
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for directory in answer.results
            for topic in directory.topics
            for partition in topic.partitions
            if not partition.is_future_key
        }
