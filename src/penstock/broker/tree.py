"""Which tree a broker has: ZooKeeper's where `zookeeper.connect` names one, or its own on disk."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.coordination.interface import Coordination
from penstock.storage.disk import Disk

COORDINATION_FOLDER = ".coordination"  # in the first data directory


async def open_tree(
    resolved: Mapping[str, Any],
    *,
    disk: Disk,
    directory: str,
    executor: Executor,
    report: Callable[[str], None],
) -> Coordination:
    """CoordinationError where it cannot be had; the message says what to do."""
    config = ZooKeeperConfig.find_in(resolved)
    if config is not None:
        # Only here: a single node needs none of what this loads.
        from penstock.coordination.zookeeper import ZooKeeperCoordination

        return await ZooKeeperCoordination.open(config, report=report)
    from penstock.coordination.embedded import EmbeddedCoordination

    return await EmbeddedCoordination.open(
        disk, f"{directory}/{COORDINATION_FOLDER}", executor=executor, report=report
    )
