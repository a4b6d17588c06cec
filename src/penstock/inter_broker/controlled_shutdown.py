"""Controlled shutdown: this broker's leaderships move to other brokers before it stops.

After `controlled.shutdown.max.retries` attempts the broker stops anyway: once its session expires,
the controller elects other leaders, or none.
"""

from collections.abc import Awaitable, Callable

from penstock.controller.interface import Membership
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.controller_client import ControllerClient
from penstock.inter_broker.messages.controlled_shutdown import (
    CONTROLLED_SHUTDOWN_VERSIONS,
    ControlledShutdownRequest,
    encode_controlled_shutdown,
)
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerEpoch
from penstock.model.errors import Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.metadata_cache import MetadataCache

ATTEMPT_MS = 10_000


class ControlledShutdown:
    """Owned by the event loop; run once, when the broker stops."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        metadata: MetadataCache,
        membership: Membership,  # of this broker's own controller
        config: Callable[[], InterBrokerConfig],
        wait_ms: Callable[[int], Awaitable[None]],
        logger: EventLogger,
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._membership = membership
        self._config = config
        self._wait_ms = wait_ms
        self._logger = logger

    async def run(self, broker_epoch: BrokerEpoch) -> bool:
        """True once this broker leads only partitions that no other replica can lead."""
        config = self._config()
        if not config.controlled_shutdown_enable or len(self._metadata.brokers) < 2:
            return True
        attempts = config.controlled_shutdown_max_retries
        for attempt in range(1, attempts + 1):
            problem = await self._try(broker_epoch)
            if problem is None:
                return True
            self._logger.warning(
                "controlled_shutdown_failed",
                f"controlled shutdown, attempt {attempt} of {attempts}: {problem}",
            )
            if attempt < attempts:
                await self._wait_ms(config.controlled_shutdown_retry_backoff_ms)
        return False

    async def _try(self, broker_epoch: BrokerEpoch) -> str | None:
        """Try once. Returns the reason of a failure, for the log; None: done."""
        try:
            remaining = await self._request(broker_epoch)
        except ConnectionError as error:
            return f"the controller is unreachable ({error})"
        except Refusal as refusal:
            return f"the controller rejects it ({refusal.code.name}: {refusal.message})"
        if remaining:
            return (
                f"{len(remaining)} partitions have no other replica in sync, "
                f"{remaining[0]} among them"
            )
        return None

    async def _request(self, broker_epoch: BrokerEpoch) -> tuple[TopicPartition, ...]:
        own_id = self._controller.own_id
        if self._controller.is_here:
            return await self._membership.controlled_shutdown(
                own_id, broker_epoch, timeout_ms=ATTEMPT_MS
            )
        response = await self._controller.call_private(
            PrivateKey.CONTROLLED_SHUTDOWN,
            CONTROLLED_SHUTDOWN_VERSIONS,
            encode_controlled_shutdown(ControlledShutdownRequest(own_id, broker_epoch, ATTEMPT_MS)),
            timeout_ms=2 * ATTEMPT_MS,
        )
        return response.partitions
