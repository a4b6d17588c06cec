"""Another broker: in this one's metadata, and scripted on a socket."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from tests.unit.client.scripted_broker import ScriptedBroker

from penstock.client.address import Address
from penstock.inter_broker.broker_connections import BrokerConnections
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    Endpoint,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import LeaderEpoch, TopicId
from penstock.replication.metadata_cache import MetadataCache

ME, OTHER, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
BROKERS = "BROKERS"


class TwoBrokers:
    """This broker, and a scripted one."""

    def __init__(self, other: ScriptedBroker, tasks: asyncio.TaskGroup) -> None:
        self.other = other
        self.tasks = tasks
        self.connections = BrokerConnections(own_id=ME, listener=BROKERS)
        self.metadata = MetadataCache()
        self.update(brokers=(_node(ME, Address("127.0.0.1", 1)), _node(OTHER, other.address)))

    def update(self, *topics: TopicState, **changes: Any) -> None:
        self.metadata.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                topics=topics,
                **changes,
            )
        )

    def lead(self, topic: str, *leaders: BrokerId) -> None:
        """Add a topic with one partition per leader."""
        states = tuple(
            PartitionState(leader, LeaderEpoch(0), (leader,), (leader,)) for leader in leaders
        )
        topic_id = TopicId(UUID(int=len(self.metadata.topics) + 1))
        self.update(TopicState(name=topic, topic_id=topic_id, partitions=states))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.create_task(work)


def _node(broker: BrokerId, address: Address) -> BrokerNode:
    endpoint = Endpoint(BROKERS, "PLAINTEXT", address.host, address.port)
    return BrokerNode(id=broker, epoch=BrokerEpoch(1), endpoints=(endpoint,))


@asynccontextmanager
async def two_brokers() -> AsyncIterator[TwoBrokers]:
    async with asyncio.timeout(60), ScriptedBroker(OTHER) as other, asyncio.TaskGroup() as tasks:
        brokers = TwoBrokers(other, tasks)
        yield brokers
        await brokers.connections.close()
