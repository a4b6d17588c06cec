"""Sends AlterPartition proposals of the leaders on this broker to the active controller.

One request at a time, with all proposals that are pending. It retries nothing: a result of unknown
outcome is delivered after a pause, and the leader proposes again from its state at that time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.client.call import Call
from penstock.controller.interface import Membership
from penstock.inter_broker.controller_client import ControllerClient
from penstock.model.alter_partition import (
    AlterPartitionProposal,
    AlterPartitionResult,
    AlterPartitionState,
)
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode, Refusal, known_error
from penstock.model.ids import LeaderEpoch, TopicId
from penstock.protocol.api_keys import ApiKey
from penstock.replication.alter_partition import Answered

PROPOSALS_PER_REQUEST = 2000
TIMEOUT_MS = 20_000  # longer than the controller takes to give up
PAUSE_MS = 100  # after a failure; a controller election is over soon

_WITH_STATE = (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION)
_Pending = tuple[AlterPartitionProposal, Answered]


class AlterPartitionClient:
    """Implements `replication.AlterPartitionSender`. Owned by the event loop; `run` is its task."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        membership: Membership,  # of this broker's own controller
        broker_epoch: Callable[[], BrokerEpoch],
        wait_ms: Callable[[int], Awaitable[None]],
    ) -> None:
        self._controller = controller
        self._membership = membership
        self._broker_epoch = broker_epoch
        self._wait_ms = wait_ms
        self._pending: list[_Pending] = []  # one per partition: leaders wait for the result
        self._wake = asyncio.Event()

    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        self._pending.append((proposal, done))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = self._pending[:PROPOSALS_PER_REQUEST]
                del self._pending[: len(batch)]
                results = await self._send([proposal for proposal, _ in batch])
                for (_, done), result in zip(batch, results, strict=True):
                    done(result)

    async def _send(
        self, proposals: Sequence[AlterPartitionProposal]
    ) -> Sequence[AlterPartitionResult]:
        try:
            if self._controller.is_here:
                return await self._propose_here(proposals)
            return await self._send_request(proposals)
        except ConnectionError:
            code = ErrorCode.NETWORK_EXCEPTION
        except Refusal as refusal:
            code = refusal.code
        await self._wait_ms(PAUSE_MS)
        return [AlterPartitionResult(code)] * len(proposals)

    async def _propose_here(
        self, proposals: Sequence[AlterPartitionProposal]
    ) -> list[AlterPartitionResult]:
        results = await self._membership.alter_partition(
            proposals,
            broker=self._controller.own_id,
            broker_epoch=self._broker_epoch(),
            timeout_ms=TIMEOUT_MS,
        )
        return [_result(code, state) for code, state in results]

    async def _send_request(
        self, proposals: Sequence[AlterPartitionProposal]
    ) -> list[AlterPartitionResult]:
        call = alter_partition_call(self._controller.own_id, self._broker_epoch(), proposals)
        response = await self._controller.call(call, timeout_ms=TIMEOUT_MS)
        return read_alter_partition(response, proposals)


def alter_partition_call(
    broker: BrokerId, broker_epoch: BrokerEpoch, proposals: Sequence[AlterPartitionProposal]
) -> Call:
    by_topic: dict[TopicId, list[dict[str, Any]]] = {}
    for proposal in proposals:
        by_topic.setdefault(proposal.topic_id, []).append(_partition_fields(proposal))
    topics = [
        {"topic_id": topic_id, "partitions": partitions}
        for topic_id, partitions in by_topic.items()
    ]
    fields = {"broker_id": broker, "broker_epoch": broker_epoch, "topics": topics}
    return Call(ApiKey.ALTER_PARTITION, range(2, 4), fields)


def read_alter_partition(
    response: Any, proposals: Sequence[AlterPartitionProposal]
) -> list[AlterPartitionResult]:
    """One result per proposal; Refusal if the whole request was rejected."""
    if response.error_code != ErrorCode.NONE:
        raise Refusal(known_error(int(response.error_code)))
    partitions = {
        (topic.topic_id, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }
    return [
        _read(partitions.get((proposal.topic_id, proposal.partition))) for proposal in proposals
    ]


def _read(partition: Any) -> AlterPartitionResult:
    if partition is None:
        return AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    code = known_error(int(partition.error_code))
    state = AlterPartitionState(
        BrokerId(partition.leader_id),
        LeaderEpoch(partition.leader_epoch),
        tuple(map(BrokerId, partition.isr)),
        partition.partition_epoch,
    )
    return _result(code, state)


def _result(code: ErrorCode, state: AlterPartitionState | None) -> AlterPartitionResult:
    return AlterPartitionResult(code, state if code in _WITH_STATE else None)


def _partition_fields(proposal: AlterPartitionProposal) -> dict[str, Any]:
    return {
        "partition_index": proposal.partition,
        "leader_epoch": proposal.leader_epoch,
        "partition_epoch": proposal.partition_epoch,
        "new_isr": [member.broker_id for member in proposal.in_sync],
        "new_isr_with_epochs": [member._asdict() for member in proposal.in_sync],
    }
