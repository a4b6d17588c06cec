"""Other brokers as this one sees them: a view of the cluster, and a scripted one on a socket."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from tests.unit.client.scripted_broker import ScriptedBroker

from penstock.client.address import Address
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.raw_config import RawConfig
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


class Neighbourhood:
    """This broker, and another one that says what a test wants."""

    def __init__(self, other: ScriptedBroker, tasks: asyncio.TaskGroup) -> None:
        self.other = other
        self.tasks = tasks
        self.peers = BrokerConnections(own_id=ME, listener=BROKERS)
        self.cluster = MetadataCache()
        self.tell(brokers=(_node(ME, Address("127.0.0.1", 1)), _node(OTHER, other.address)))

    def tell(self, *topics: TopicState, **changes: Any) -> None:
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                topics=topics,
                **changes,
            )
        )

    def lead(self, topic: str, *leaders: BrokerId) -> None:
        """One partition each."""
        states = tuple(
            PartitionState(leader, LeaderEpoch(0), (leader,), (leader,)) for leader in leaders
        )
        topic_id = TopicId(UUID(int=len(self.cluster.topics) + 1))
        self.tell(TopicState(name=topic, topic_id=topic_id, partitions=states))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.create_task(work)


def _node(broker: BrokerId, address: Address) -> BrokerNode:
    endpoint = Endpoint(BROKERS, "PLAINTEXT", address.host, address.port)
    return BrokerNode(id=broker, epoch=BrokerEpoch(1), endpoints=(endpoint,))


def settings_of(given: Mapping[str, str]) -> EffectiveConfig:
    return resolve_broker(RawConfig.from_mapping(given, where="test"))


@asynccontextmanager
async def neighbourhood() -> AsyncIterator[Neighbourhood]:
    async with asyncio.timeout(60), ScriptedBroker(OTHER) as other, asyncio.TaskGroup() as tasks:
        made = Neighbourhood(other, tasks)
        yield made
        await made.peers.close()
