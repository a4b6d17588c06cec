"""AlterPartition (KIP-497) as values: a leader's proposal of an ISR, and the controller's result.

Leaders, the controller and the two requests between them share these; no behaviour.
"""

from typing import NamedTuple

from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId


class IsrMember(NamedTuple):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # as known to the leader; -1: unknown (KIP-903)


class AlterPartitionProposal(NamedTuple):
    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch  # of the proposing leader
    partition_epoch: int  # of the state to change; rejected if it is not the current one
    in_sync: tuple[IsrMember, ...]  # the whole new ISR, including the leader


class AlterPartitionState(NamedTuple):
    """A partition's state as the controller has stored it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]
    partition_epoch: int


class AlterPartitionResult(NamedTuple):
    """The controller's answer to one proposal, as it reaches the leader.

    NONE: stored, as `state` says. INVALID_UPDATE_VERSION: rejected because the stored state is
    `state`, which the leader adopts if it still leads in it. FENCED_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION, INELIGIBLE_REPLICA and the like: rejected, nothing was stored.
    REQUEST_TIMED_OUT, NETWORK_EXCEPTION, NOT_CONTROLLER and every other retriable code: unknown
    whether it was stored, so the leader proposes again.
    """

    code: ErrorCode
    state: AlterPartitionState | None = None  # None: there is no such partition, or not answered
