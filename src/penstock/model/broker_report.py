"""A broker's report: its incarnation, and the replicas that lost records while it was down.

Values only. The broker writes its report before it registers; the controller removes replicas from
it once it has decided about them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition


class LogPosition(NamedTuple):
    """How far a log goes. Of two logs the greater one has more of the partition's history."""

    leader_epoch: LeaderEpoch  # of its last record
    end_offset: Offset

    @property
    def has_records(self) -> bool:
        return self.leader_epoch != NO_LEADER_EPOCH


NO_LOG = LogPosition(NO_LEADER_EPOCH, Offset(-1))  # it is gone, or has lost all of its records
NEVER_CREATED = LogPosition(NO_LEADER_EPOCH, Offset(0))  # its creation was cut short


class ReportedReplica(NamedTuple):
    topic_id: TopicId
    position: LogPosition  # what is left of its log


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    incarnation: int = 0  # rises with every registration; 0: it has never registered
    replicas: Mapping[TopicPartition, ReportedReplica] = field(default_factory=dict)
    version: int = -1  # of its znode; -1: there is none
