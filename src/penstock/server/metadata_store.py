"""Which tree a broker has: ZooKeeper's where `zookeeper.connect` names one, or its own on disk."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.io.disk import Disk
from penstock.metadata_store.interface import MetadataStore

COORDINATION_FOLDER = ".coordination"  # in the first data directory


async def open_tree(
    resolved: Mapping[str, Any],
    *,
    disk: Disk,
    directory: str,
    executor: Executor,
    report: Callable[[str], None],
) -> MetadataStore:
    """CoordinationError where it cannot be had; the message says what to do."""
    config = find_zookeeper(resolved)
    if config is not None:
        # Only here: a single node needs none of what this loads.
        from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore

        return await ZooKeeperMetadataStore.open(config, report=report)
    from penstock.metadata_store.embedded.store import EmbeddedMetadataStore

    return await EmbeddedMetadataStore.open(
        disk, f"{directory}/{COORDINATION_FOLDER}", executor=executor, report=report
    )


def find_zookeeper(resolved: Mapping[str, Any]) -> ZooKeeperConfig | None:
    """None for a node of its own."""
    connect = resolved["zookeeper.connect"]
    if not connect:
        return None
    return ZooKeeperConfig.parse(
        connect,
        session_timeout_ms=resolved["zookeeper.session.timeout.ms"],
        connection_timeout_ms=resolved["zookeeper.connection.timeout.ms"],
    )
