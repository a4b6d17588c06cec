"""Reports replicas whose log has failed on this broker to the controller, until it responds.

The controller decides what follows. A replica is reported again whenever a LeaderAndIsr request
reaches it, because a new controller does not know of the failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.controller.interface import Membership
from penstock.inter_broker.controller_client import ControllerClient
from penstock.inter_broker.messages.failed_replicas import (
    FAILED_REPLICAS_VERSIONS,
    FailedReplicasRequest,
    encode_failed_replicas,
)
from penstock.model.cluster import BrokerEpoch
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.private_keys import PrivateKey

TIMEOUT_MS = 10_000
PAUSE_MS = 100
REPLICAS_PER_REQUEST = 2000


class FailedReplicasSender:
    """Owned by the event loop; `run` is its task."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        membership: Membership,  # of this broker's own controller
        broker_epoch: Callable[[], BrokerEpoch],
        wait_ms: Callable[[int], Awaitable[None]],
        is_damaged: bool = False,  # reports leaders with a damaged log instead
    ) -> None:
        self._controller = controller
        self._membership = membership
        self._broker_epoch = broker_epoch
        self._wait_ms = wait_ms
        self._is_damaged = is_damaged
        self._pending: dict[TopicPartition, None] = {}  # an ordered set
        self._wake = asyncio.Event()

    def add(self, tp: TopicPartition) -> None:
        self._pending[tp] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = list(self._pending)[:REPLICAS_PER_REQUEST]
                for tp in batch:  # before sending: one that is added meanwhile is sent again
                    del self._pending[tp]
                if not await self._try_send(batch):
                    self._pending.update(dict.fromkeys(batch))
                    await self._wait_ms(PAUSE_MS)

    async def _try_send(self, partitions: Sequence[TopicPartition]) -> bool:
        try:
            await self._send(tuple(partitions))
        except ConnectionError:
            return False
        except Refusal as refusal:
            # This broker has re-registered since, and gets a LeaderAndIsr for every replica.
            return refusal.code is ErrorCode.STALE_BROKER_EPOCH
        return True

    async def _send(self, partitions: tuple[TopicPartition, ...]) -> None:
        own_id, epoch = self._controller.own_id, self._broker_epoch()
        if self._controller.is_here:
            membership = self._membership
            handle = (
                membership.replace_damaged_leaders if self._is_damaged else membership.fail_replicas
            )
            await handle(own_id, epoch, partitions, timeout_ms=TIMEOUT_MS)
            return
        request = FailedReplicasRequest(own_id, epoch, TIMEOUT_MS, partitions, self._is_damaged)
        await self._controller.call_private(
            PrivateKey.FAILED_REPLICAS,
            FAILED_REPLICAS_VERSIONS,
            encode_failed_replicas(request),
            timeout_ms=2 * TIMEOUT_MS,
        )
