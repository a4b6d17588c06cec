"""One replica of this broker: its role, its epoch, who is in sync, and how far it is committed.

Owned by the event loop; changed by `Replicas` alone. Not the log, which it points at. Invariant:
`leadership` is there exactly while this broker leads, and in it the high watermark never falls.
"""

from enum import IntEnum, StrEnum

from penstock.model.cluster import INTERNAL_TOPICS, NO_BROKER, BrokerId, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.model.values import dataclass
from penstock.replication.high_watermark import UNKNOWN_END, next_high_watermark
from penstock.replication.topic_rules import TopicRules
from penstock.storage.engine import PartitionLog

NO_STATE = PartitionState(NO_BROKER, NO_LEADER_EPOCH, (), (), partition_epoch=-1)


class Isolation(IntEnum):
    """What a reader wants to see, with the protocol's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Role(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"  # no order has come yet, it was stopped, or its log has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    partition: TopicPartition
    topic_id: TopicId
    role: Role
    leader: BrokerId
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    in_sync: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    failure: str | None  # why its log takes nothing any more


class Leadership:
    """One time of leading, from becoming the leader to not being it, over all its epochs.

    Who waits for a write waits under the leadership that took it: a later one may have lost it.
    """

    __slots__ = ("durable_offset", "ended", "high_watermark")

    def __init__(self) -> None:
        self.ended: ErrorCode | None = None  # what to tell those whose write had not got through
        self.high_watermark = self.durable_offset = Offset(-1)  # as they were at the end


class Partition:
    __slots__ = (
        "broker_id",
        "failure",
        "follower_ends",
        "is_flushing",
        "is_internal",
        "is_lone",
        "is_open",
        "is_synchronous",
        "lacks_replicas",
        "leader_epoch",
        "leadership",
        "log",
        "min_in_sync",
        "partition",
        "state",
        "topic_id",
    )

    def __init__(self, broker_id: BrokerId, log: PartitionLog, rules: TopicRules) -> None:
        self.broker_id = broker_id
        self.partition = log.partition
        self.topic_id = log.topic_id
        self.log = log
        self.is_internal = log.partition.topic in INTERNAL_TOPICS
        self.failure: str | None = None  # why its log takes nothing any more; then it has no role
        self.state = NO_STATE
        self.leader_epoch = NO_LEADER_EPOCH
        self.leadership: Leadership | None = None
        self.follower_ends: dict[BrokerId, Offset] = {}  # of those in sync, while leading
        self.is_flushing = False  # a flush that `Replicas` asked for is under way
        self.min_in_sync = rules.min_in_sync
        self.is_synchronous = rules.is_synchronous
        self.lacks_replicas = False  # leads, with fewer in sync than acks=all asks for
        self.is_lone = False  # leads, and what is in its log is committed: nobody waits for more
        self.is_open = False  # leads, and any client's append may go to the log without a look

    # -- asked by readers and writers ------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def high_watermark(self) -> Offset:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return self.log.last_stable_offset

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Refuses unless this broker leads, under the epoch that the client knows (-1: of none)."""
        if self.failure is not None:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR)
        if 0 <= current_leader_epoch != self.leader_epoch:
            raise self._refuse_epoch(current_leader_epoch)
        if self.leadership is None:
            raise Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker_id} does not lead {self.partition}; refresh the metadata",
            )

    def _refuse_epoch(self, given: int) -> Refusal:
        is_old = given < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        advice = "refresh the metadata" if is_old else "try again shortly"
        return Refusal(
            code,
            f"{self.partition} is at leader epoch {self.leader_epoch} here, not {given}; {advice}",
        )

    def readable_end(self, isolation: Isolation) -> Offset:
        """Clients may read what is below."""
        if isolation is Isolation.READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def statistics(self) -> PartitionStatistics:
        log = self.log
        return PartitionStatistics(
            partition=self.partition,
            topic_id=self.topic_id,
            role=self.role,
            leader=self.state.leader,
            leader_epoch=self.leader_epoch,
            log_start_offset=log.log_start_offset,
            last_stable_offset=log.last_stable_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            in_sync=self.state.in_sync,
            replicas=self.state.replicas,
            failure=self.failure,
        )

    @property
    def role(self) -> Role:
        if self.leadership is not None:
            return Role.LEADER
        has_none = self.state is NO_STATE or self.failure is not None
        return Role.NONE if has_none else Role.FOLLOWER

    # -- changed by `Replicas` -------------------------------------------------------------

    def lead(self, state: PartitionState) -> None:
        """From here on, or still, with a later epoch or another set of replicas."""
        if state.leader_epoch > self.log.latest_epoch:
            self.log.begin_epoch(state.leader_epoch)
        followers = [each for each in state.in_sync if each != self.broker_id]
        known = self.follower_ends if state.leader_epoch == self.leader_epoch else {}
        self.follower_ends = {each: known.get(each, UNKNOWN_END) for each in followers}
        self.leadership = self.leadership or Leadership()
        self._take(state)

    def follow(self, state: PartitionState) -> None:
        self._end_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._take(state)

    def stop(self) -> None:
        """No role any more, until the next order."""
        self.follow(NO_STATE)

    def fail(self, failure: str) -> None:
        """Its log is lost to this broker until a restart."""
        self.failure = failure
        self._end_leadership(ErrorCode.KAFKA_STORAGE_ERROR)

    def _end_leadership(self, code: ErrorCode) -> None:
        """Those who wait for a write under it are answered by how far it got, else the code."""
        if self.leadership is not None:
            self.leadership.high_watermark = self.log.high_watermark
            self.leadership.durable_offset = self.log.durable_offset
            self.leadership.ended = code
        self.leadership = None
        self.follower_ends = {}
        self._settle()

    def _take(self, state: PartitionState) -> None:
        self.state = state
        self._settle()
        self.leader_epoch = state.leader_epoch  # last: the epoch vouches for all the rest

    def obey(self, rules: TopicRules) -> None:
        if self.log.config != rules.served:
            self.log.reconfigure(rules.served)
        self.min_in_sync = rules.min_in_sync
        self.is_synchronous = rules.is_synchronous
        self._settle()

    def _settle(self) -> None:
        """What appends ask each time. No more replicas are asked for than there are."""
        wanted = min(self.min_in_sync, len(self.state.replicas))
        self.lacks_replicas = self.is_leader and len(self.state.in_sync) < wanted
        self.is_lone = self.is_leader and not self.follower_ends and not self.is_synchronous
        self.is_open = self.is_leader and not self.lacks_replicas and not self.is_internal

    def note_follower_end(self, follower: BrokerId, end_offset: Offset) -> None:
        """A follower has everything below, on its disk if the topic is synchronous."""
        if follower in self.follower_ends:
            self.follower_ends[follower] = end_offset

    def advance_high_watermark(self) -> bool:
        """As far as every replica in sync is known to be; True if it moved. Only while leading."""
        log = self.log
        own_end = log.durable_offset if self.is_synchronous else log.log_end_offset
        before = log.high_watermark
        reached = next_high_watermark(before, (own_end, *self.follower_ends.values()))
        if reached == before:
            return False
        log.advance_high_watermark(reached)
        return True
