"""A controlled stop: what this broker leads is moved to others before it goes.

It tries as often as the settings say, and then the broker stops all the same: its partitions are
led by others, or by nobody, once its session has ended.
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
from penstock.model.cluster import BrokerEpoch
from penstock.model.errors import Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.metadata_cache import MetadataCache

ATTEMPT_MS = 10_000


class ControlledShutdown:
    """One broker's way out."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        metadata: MetadataCache,
        membership: Membership,  # of the controller here
        config: Callable[[], InterBrokerConfig],
        wait_ms: Callable[[int], Awaitable[None]],
        report: Callable[[str], None],
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._membership = membership
        self._config = config
        self._wait_ms = wait_ms
        self._report = report

    async def hand_over(self, broker_epoch: BrokerEpoch) -> bool:
        """True when this broker leads nothing any more that others can lead."""
        config = self._config()
        if not config.controlled_shutdown_enable or len(self._metadata.brokers) < 2:
            return True
        attempts = config.controlled_shutdown_max_retries
        for number in range(attempts):
            problem = await self._try(broker_epoch)
            if problem is None:
                return True
            self._report(f"attempt {number + 1} of {attempts} to hand leaders over: {problem}")
            if number + 1 < attempts:
                await self._wait_ms(config.controlled_shutdown_retry_backoff_ms)
        return False

    async def _try(self, broker_epoch: BrokerEpoch) -> str | None:
        """What is in the way."""
        try:
            left = await self._ask(broker_epoch)
        except ConnectionError as error:
            return f"the controller cannot be reached ({error})"
        except Refusal as refusal:
            return f"the controller refuses ({refusal.code.name}: {refusal.message})"
        if left:
            return f"{len(left)} partitions have no other replica in sync, {left[0]} among them"
        return None

    async def _ask(self, broker_epoch: BrokerEpoch) -> tuple[TopicPartition, ...]:
        own_id = self._controller.own_id
        if self._controller.is_here:
            return await self._membership.controlled_shutdown(
                own_id, broker_epoch, timeout_ms=ATTEMPT_MS
            )
        answer = await self._controller.ask(
            PrivateKey.CONTROLLED_SHUTDOWN,
            CONTROLLED_SHUTDOWN_VERSIONS,
            encode_controlled_shutdown(ControlledShutdownRequest(own_id, broker_epoch, ATTEMPT_MS)),
            timeout_ms=2 * ATTEMPT_MS,
        )
        return answer.partitions
