"""Asks brokers for their replicas of partitions: a private request to each (docs/inter_broker.md).

Only Penstock's brokers answer it; others close the connection.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from penstock.client.call import PrivateCall
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.router import Router
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_replicas import (
    DESCRIBE_REPLICAS_VERSIONS,
    MAX_PARTITIONS,
    DescribedReplica,
    decode_replicas,
    encode_describe_replicas,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse

ReplicasByBroker = dict[BrokerId, dict[TopicPartition, DescribedReplica]]


class ReplicasClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self,
        partitions: Mapping[BrokerId, Sequence[TopicPartition]],
        *,
        timeout_ms: int | None = None,
    ) -> ReplicasByBroker:
        """The replicas of each broker, all brokers asked at once. A broker that does not answer in
        time, or not at all, is left out: the caller wants to see just that."""
        described = await asyncio.gather(
            *(self._describe(broker, wanted, timeout_ms) for broker, wanted in partitions.items())
        )
        answers = zip(partitions, described, strict=True)
        return {broker: replicas for broker, replicas in answers if replicas is not None}

    async def _describe(
        self, broker: BrokerId, wanted: Sequence[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, DescribedReplica] | None:
        replicas: dict[TopicPartition, DescribedReplica] = {}
        try:
            for start in range(0, len(wanted), MAX_PARTITIONS):
                some = wanted[start : start + MAX_PARTITIONS]
                for replica in await self._ask(broker, some, timeout_ms):
                    replicas[replica.tp] = replica
        except ClientError:
            return None
        return replicas

    async def _ask(
        self, broker: BrokerId, wanted: Sequence[TopicPartition], timeout_ms: int | None
    ) -> Iterable[DescribedReplica]:
        body = encode_describe_replicas(wanted)
        call = PrivateCall(PrivateKey.DESCRIBE_REPLICAS, DESCRIBE_REPLICAS_VERSIONS[-1], body)
        response = await self._router.ask_broker(broker, call, self._router.deadline(timeout_ms))
        assert isinstance(response, PrivateResponse)
        if response.code is not ErrorCode.NONE:
            raise RefusedByBroker(f"replicas of broker {broker}", response.code, response.message)
        return decode_replicas(response.payload)
