"""The seam through which a leader asks the controller to change who is in sync. Decides nothing.

A broker wires a sender of AlterPartition here (KIP-497); the simulation its own. Invariant: until
its answer says otherwise, a proposed set may be the cluster's already.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition


class ProposedIsrMember(NamedTuple):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # as the leader knows it, -1 where it does not (KIP-903)


class AlterPartitionProposal(NamedTuple):
    partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch  # of the leader that proposes
    partition_epoch: int  # of the state that it changes; another one by now refuses it
    in_sync: tuple[ProposedIsrMember, ...]  # all of the new set, the leader among them


class AlterPartitionState(NamedTuple):
    """A partition's state as the controller has stored it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]
    partition_epoch: int


class AlterPartitionResult(NamedTuple):
    """NONE: stored, as `state` says. INVALID_UPDATE_VERSION: refused for the state that `state`
    says, which the leader adopts if it still leads in it. FENCED_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION, INELIGIBLE_REPLICA and the like: refused, nothing was stored.
    REQUEST_TIMED_OUT, NETWORK_EXCEPTION, NOT_CONTROLLER and every retriable code besides: nobody
    knows, so the leader asks again."""

    code: ErrorCode
    state: AlterPartitionState | None = None  # there with the first two codes


Answered = Callable[[AlterPartitionResult], None]


class AlterPartitionSender(Protocol):
    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        """Send it to the controller, with others that wait if that helps. `done` is called once,
        on the event loop, never from within this call; also when no controller can be reached."""
