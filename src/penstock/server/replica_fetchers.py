"""Starts the fetchers of a broker's follower replicas. Imported when the first one follows."""

import asyncio
from collections.abc import Callable

from penstock.client.address import Address
from penstock.client.security.authenticator import Authenticator
from penstock.client.security.config import ClientSecurity
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.replication.replica_fetcher import FetcherDependencies, ReplicaFetcherManager
from penstock.server.context import BrokerContext


def start_replica_fetchers(
    context: BrokerContext,
    *,
    listener: str,
    security: ClientSecurity,
    broker_epoch: Callable[[], BrokerEpoch],
) -> asyncio.Task[None]:
    replicas, metadata = context.replicas, context.metadata

    def find_address(broker: BrokerId) -> Address | None:
        node = metadata.brokers.get(broker)
        endpoint = None if node is None else node.find_endpoint(listener)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    fetchers = ReplicaFetcherManager(
        FetcherDependencies(
            follower_state=replicas.follower_state,
            broker_id=context.broker_id,
            broker_epoch=broker_epoch,
            find_address=find_address,
            topic_id_of=lambda tp: replicas.get(tp).topic_id,
            config=replicas.follower_config,
            now_ms=context.timers.now_ms,
            logger=context.get_logger("replication"),
            authenticator=Authenticator(security),
        )
    )
    return context.tasks.create_task(fetchers.run(), name="replica-fetchers")
