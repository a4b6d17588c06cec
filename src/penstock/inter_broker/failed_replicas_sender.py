"""Tells the controller of replicas whose log has failed here, until it has heard of them.

What it does about it is the controller's. Told again whenever an order comes that such a replica
cannot obey: a new controller does not know.
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
AT_ONCE = 2000


class FailedReplicasSender:
    """Owned by the event loop; `run` is its task."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        membership: Membership,  # of the controller here
        broker_epoch: Callable[[], BrokerEpoch],
        wait_ms: Callable[[int], Awaitable[None]],
    ) -> None:
        self._controller = controller
        self._membership = membership
        self._broker_epoch = broker_epoch
        self._wait_ms = wait_ms
        self._waiting: dict[TopicPartition, None] = {}  # each once
        self._wake = asyncio.Event()

    def note(self, partition: TopicPartition) -> None:
        self._waiting[partition] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = list(self._waiting)[:AT_ONCE]
                for each in some:  # before it is told: what is noted meanwhile is told again
                    del self._waiting[each]
                if not await self._try_tell(some):
                    self._waiting.update(dict.fromkeys(some))
                    await self._wait_ms(PAUSE_MS)

    async def _try_tell(self, partitions: Sequence[TopicPartition]) -> bool:
        try:
            await self._tell(tuple(partitions))
        except ConnectionError:
            return False
        except Refusal as refusal:
            # Another life of this broker is ordered everything anew.
            return refusal.code is ErrorCode.STALE_BROKER_EPOCH
        return True

    async def _tell(self, partitions: tuple[TopicPartition, ...]) -> None:
        own_id, epoch = self._controller.own_id, self._broker_epoch()
        if self._controller.is_here:
            await self._membership.fail_replicas(own_id, epoch, partitions, timeout_ms=TIMEOUT_MS)
            return
        await self._controller.ask(
            PrivateKey.FAILED_REPLICAS,
            FAILED_REPLICAS_VERSIONS,
            encode_failed_replicas(FailedReplicasRequest(own_id, epoch, TIMEOUT_MS, partitions)),
            timeout_ms=2 * TIMEOUT_MS,
        )
