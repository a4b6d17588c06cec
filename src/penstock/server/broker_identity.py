"""Establishes broker id and cluster id: config, meta.properties and the metadata store must agree.

Invariant: after `establish_identity` every usable log directory names this broker and cluster.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from penstock.controller.broker_registration import (
    get_or_create_cluster_id,
    next_generated_broker_id,
)
from penstock.io.disk import Disk
from penstock.model.cluster import BrokerId
from penstock.server.config import ServerConfig
from penstock.server.meta_properties import (
    DirectoryOwner,
    check_owner,
    write_owner,
)
from penstock.server.metadata_store import BrokerMetadataStore

DEFAULT_BROKER_ID = 1


class BrokerIdentity(NamedTuple):
    broker_id: BrokerId
    cluster_id: str


async def establish_identity(
    config: ServerConfig,
    owner: DirectoryOwner,
    *,
    store: BrokerMetadataStore,
    disk: Disk,
    directories: Sequence[str],
    engine: str,
) -> BrokerIdentity:
    """WrongOwner if the directories belong to another broker or cluster."""
    broker_id = await _choose_broker_id(config, owner.broker_id, store)
    cluster_id = await store.ask_at_startup(get_or_create_cluster_id)
    check_owner(owner, broker_id=broker_id, cluster_id=cluster_id, directory=directories[0])
    write_owner(disk, directories, broker_id=broker_id, cluster_id=cluster_id, engine=engine)
    return BrokerIdentity(BrokerId(broker_id), cluster_id)


async def _choose_broker_id(
    config: ServerConfig, stored: int | None, store: BrokerMetadataStore
) -> int:
    """`broker.id`, else meta.properties, else a generated id in a cluster, else the default."""
    if config.broker_id >= 0:
        return config.broker_id
    if stored is not None:
        return stored
    if config.is_clustered and config.broker_id_generation_enable:
        generate = partial(next_generated_broker_id, reserved_max=config.reserved_broker_max_id)
        return await store.ask_at_startup(generate)
    return DEFAULT_BROKER_ID
