"""A BrokerContext around the replication harness."""

import asyncio
from typing import cast

from tests.unit.replication.harness import ME, ReplicationHarness

from penstock.logs.event_logger import message_logger
from penstock.server.context import BrokerContext

WALL_MS = 1_700_000_000_000


def broker_context(
    harness: ReplicationHarness, tasks: asyncio.TaskGroup | None = None
) -> BrokerContext:
    """Build a context; without `tasks` nothing can run in it."""
    logs_ready = asyncio.Event()
    logs_ready.set()
    return BrokerContext(
        broker_id=ME,
        config=lambda: harness.settings,
        timers=harness.clock,
        wall_ms=lambda: WALL_MS,
        metadata=harness.cluster,
        replicas=harness.replicas,
        tasks=cast("asyncio.TaskGroup", tasks),
        get_logger=lambda component: message_logger(harness.reports.append),
        logs_ready=logs_ready,
    )
