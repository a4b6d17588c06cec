"""Sends what leaders ask for of their in-sync sets to the controller, wherever that is.

One request at a time, with all that has gathered. It repeats nothing: an answer that says that
nobody knows comes after a pause, and the leader asks again with what it knows by then.
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

PROPOSALS_AT_ONCE = 2000
TIMEOUT_MS = 20_000  # longer than the controller takes to give up
PAUSE_MS = 100  # after a failure: a controller that is being elected is soon known

_STATED = (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION)
_Asked = tuple[AlterPartitionProposal, Answered]


class AlterPartitionClient:
    """Implements `replication.AlterPartitionSender`. Owned by the event loop; `run` is its task."""

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
        self._waiting: list[_Asked] = []  # at most one of each partition: leaders wait for answers
        self._wake = asyncio.Event()

    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        self._waiting.append((proposal, done))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = self._waiting[:PROPOSALS_AT_ONCE]
                del self._waiting[: len(some)]
                answers = await self._send([proposal for proposal, _ in some])
                for (_, done), answer in zip(some, answers, strict=True):
                    done(answer)

    async def _send(
        self, proposals: Sequence[AlterPartitionProposal]
    ) -> Sequence[AlterPartitionResult]:
        try:
            if self._controller.is_here:
                return await self._ask_own(proposals)
            return await self._ask_other(proposals)
        except ConnectionError:
            code = ErrorCode.NETWORK_EXCEPTION
        except Refusal as refusal:
            code = refusal.code
        await self._wait_ms(PAUSE_MS)
        return [AlterPartitionResult(code)] * len(proposals)

    async def _ask_own(
        self, proposals: Sequence[AlterPartitionProposal]
    ) -> list[AlterPartitionResult]:
        outcomes = await self._membership.alter_partition(
            proposals,
            broker=self._controller.own_id,
            broker_epoch=self._broker_epoch(),
            timeout_ms=TIMEOUT_MS,
        )
        return [_answer(code, state) for code, state in outcomes]

    async def _ask_other(
        self, proposals: Sequence[AlterPartitionProposal]
    ) -> list[AlterPartitionResult]:
        call = alter_partition_call(self._controller.own_id, self._broker_epoch(), proposals)
        response = await self._controller.call(call, timeout_ms=TIMEOUT_MS)
        return read_alter_partition(response, proposals)


def alter_partition_call(
    broker: BrokerId, broker_epoch: BrokerEpoch, proposals: Sequence[AlterPartitionProposal]
) -> Call:
    by_topic: dict[TopicId, list[dict[str, Any]]] = {}
    for each in proposals:
        by_topic.setdefault(each.topic_id, []).append(_partition_fields(each))
    topics = [
        {"topic_id": topic_id, "partitions": partitions}
        for topic_id, partitions in by_topic.items()
    ]
    fields = {"broker_id": broker, "broker_epoch": broker_epoch, "topics": topics}
    return Call(ApiKey.ALTER_PARTITION, range(2, 4), fields)


def read_alter_partition(
    response: Any, proposals: Sequence[AlterPartitionProposal]
) -> list[AlterPartitionResult]:
    """An answer for each; Refusal where the whole request was refused."""
    if response.error_code != ErrorCode.NONE:
        raise Refusal(known_error(int(response.error_code)))
    found = {
        (topic.topic_id, each.partition_index): each
        for topic in response.topics
        for each in topic.partitions
    }
    return [_read(found.get((each.topic_id, each.partition))) for each in proposals]


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
    return _answer(code, state)


def _answer(code: ErrorCode, state: AlterPartitionState | None) -> AlterPartitionResult:
    return AlterPartitionResult(code, state if code in _STATED else None)


def _partition_fields(proposal: AlterPartitionProposal) -> dict[str, Any]:
    return {
        "partition_index": proposal.partition,
        "leader_epoch": proposal.leader_epoch,
        "partition_epoch": proposal.partition_epoch,
        "new_isr": [each.broker_id for each in proposal.in_sync],
        "new_isr_with_epochs": [each._asdict() for each in proposal.in_sync],
    }
