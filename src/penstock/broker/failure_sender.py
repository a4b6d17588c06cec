"""Tells the controller of replicas whose log has failed here, until it has heard of them.

What it does about it is the controller's. Told again whenever an order comes that such a replica
cannot obey: a new controller does not know.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.peers import Peers
from penstock.controller.interface import Membership
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.broker_messages import FAILED_VERSIONS, FailedReplicas, encode_failed
from penstock.protocol.private_keys import PrivateKey
from penstock.replication.cluster_view import ClusterView

TIMEOUT_MS = 10_000
PAUSE_MS = 100
AT_ONCE = 2000


class FailureSender:
    """Owned by the event loop; `run` is its task."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        cluster: ClusterView,
        membership: Membership,
        peers: Peers,
        broker_epoch: Callable[[], BrokerEpoch],
        wait_ms: Callable[[int], Awaitable[None]],
    ) -> None:
        self._own_id = own_id
        self._cluster = cluster
        self._membership = membership
        self._peers = peers
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
        epoch, controller = self._broker_epoch(), self._cluster.controller_id
        if controller == self._own_id:
            await self._membership.fail_replicas(
                self._own_id, epoch, partitions, timeout_ms=TIMEOUT_MS
            )
            return
        node = self._cluster.brokers.get(controller)
        if node is None:
            raise ConnectionError("no controller is known")
        body = encode_failed(FailedReplicas(self._own_id, epoch, TIMEOUT_MS, partitions))
        answer = await self._peers.ask(
            node,
            PrivateKey.REPLICAS_FAILED,
            FAILED_VERSIONS,
            lambda version: body,
            timeout_ms=2 * TIMEOUT_MS,
        )
        if answer.code is not ErrorCode.NONE:
            raise Refusal(answer.code, answer.message)
