"""The broker's client quotas, read before any listener opens and followed from then on."""

import asyncio
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.controller.quota_store import QuotaStore
from penstock.logs.event_logger import EventLogger
from penstock.security.quotas.client_quotas import ClientQuotas, QuotaWindows
from penstock.security.quotas.rates import RateWindow
from penstock.server.metadata_store import BrokerMetadataStore


class BrokerQuotas(NamedTuple):
    enforced: ClientQuotas
    store: QuotaStore

    def follow(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        """To be cancelled before the metadata store is closed."""
        return tasks.create_task(self.store.follow(), name="quotas")


async def open_quotas(
    config: EffectiveConfig, store: BrokerMetadataStore, logger: EventLogger
) -> BrokerQuotas:
    client = RateWindow(
        samples=config.get_int("quota.window.num"),
        sample_ms=config.get_int("quota.window.size.seconds") * 1000,
    )
    controller = RateWindow(
        samples=config.get_int("controller.quota.window.num"),
        sample_ms=config.get_int("controller.quota.window.size.seconds") * 1000,
    )
    enforced = ClientQuotas(QuotaWindows(client, controller))
    stored = QuotaStore(store.session, enforced.replace, logger)
    await store.ask_at_startup(lambda session: stored.load())
    if enforced.is_active or enforced.limits_connections:
        count = len(stored.quotas())
        logger.info(
            "quotas_loaded", f"quotas of {count} users, clients and addresses are in effect"
        )
    return BrokerQuotas(enforced, stored)
