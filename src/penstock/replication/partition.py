"""One replica of this broker: its role, its epoch, who is in sync, and how far it is committed.

Owned by the event loop; changed by `Replicas` alone. Not the log, which it points at. Invariant:
`leadership` is there exactly while this broker leads, and in it the high watermark never falls.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionState, IsrMember
from penstock.model.cluster import (
    INTERNAL_TOPICS,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    PartitionState,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.replication.follower_progress import (
    NO_BROKER_EPOCH,
    FollowerProgress,
    LagLimits,
    first_progress,
    is_keeping_up,
    progress_after_fetch,
)
from penstock.replication.high_watermark import next_high_watermark
from penstock.replication.isr import assured, maximal
from penstock.replication.topic_config import TopicConfig
from penstock.replication.transaction_verification import Verifications
from penstock.replication.truncation import find_divergence
from penstock.storage.engine import PartitionLog
from penstock.storage.leader_epoch_cache import EpochEndOffset

NO_STATE = PartitionState(NO_BROKER, NO_LEADER_EPOCH, (), (), partition_epoch=-1)


class FetchIsolation(IntEnum):
    """What a reader wants to see, with the protocol's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOG_END = 2  # of followers: no client's number


class Role(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"  # no order has come yet, it was stopped, or its log has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    tp: TopicPartition
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


class PartitionLeadership:
    """One time of leading, from becoming the leader to not being it, over all its epochs.

    Who waits for a write waits under the leadership that took it: a later one may have lost it.
    """

    __slots__ = ("_verifications", "durable_offset", "ended", "high_watermark")

    def __init__(self) -> None:
        self._verifications: Verifications | None = None  # made for who asks first
        self.ended: ErrorCode | None = None  # what to tell those whose write had not got through
        self.high_watermark = self.durable_offset = Offset(-1)  # as they were at the end

    @property
    def verifications(self) -> Verifications:
        """Of transactions whose coordinator has not answered yet."""
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications


class Partition:
    __slots__ = (
        "_catching_up",
        "_maximal_isr",
        "accepts_writes",
        "broker_id",
        "epoch_start_offset",
        "failure",
        "followers",
        "is_flushing",
        "is_internal",
        "is_single_replica",
        "is_synchronous",
        "leader_epoch",
        "leadership",
        "log",
        "min_in_sync",
        "proposal",
        "state",
        "topic_id",
        "tp",
        "under_min_isr",
    )

    def __init__(self, broker_id: BrokerId, log: PartitionLog, rules: TopicConfig) -> None:
        self.broker_id = broker_id
        self.tp = log.tp
        self.topic_id = log.topic_id
        self.log = log
        self.is_internal = log.tp.topic in INTERNAL_TOPICS
        self.failure: str | None = None  # why its log takes nothing any more; then it has no role
        self.state = NO_STATE
        self.leader_epoch = NO_LEADER_EPOCH
        self.leadership: PartitionLeadership | None = None
        # While leading: the other replicas, in sync or not, and where the present epoch began.
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.epoch_start_offset = Offset(0)
        self.proposal: AlterPartitionProposal | None = (
            None  # of another in-sync set, not answered yet
        )
        self._catching_up: frozenset[BrokerId] = frozenset()  # not in sync, and about to be
        self._maximal_isr: tuple[BrokerId, ...] = ()  # followers that the high watermark waits for
        self.is_flushing = False  # a flush that `Replicas` asked for is under way
        self.min_in_sync = rules.min_in_sync
        self.is_synchronous = rules.is_synchronous
        self.under_min_isr = False  # leads, with fewer in sync than acks=all asks for
        self.is_single_replica = (
            False  # leads, and what is in its log is committed: nobody waits for more
        )
        self.accepts_writes = (
            False  # leads, and any client's append may go to the log without a look
        )

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
                f"broker {self.broker_id} does not lead {self.tp}; refresh the metadata",
            )

    def check_reader(self, current_leader_epoch: int = -1) -> None:
        """As `check_leader`, but to follow is enough: what is committed can be read from both."""
        if self.leadership is not None or self.role is Role.NONE:
            self.check_leader(current_leader_epoch)
        elif 0 <= current_leader_epoch != self.leader_epoch:
            raise self._refuse_epoch(current_leader_epoch)

    def check_follower(self, follower: BrokerId) -> None:
        if follower not in self.followers:
            raise Refusal(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {follower} is no replica of {self.tp}"
            )

    def _refuse_epoch(self, given: int) -> Refusal:
        is_old = given < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        advice = "refresh the metadata" if is_old else "try again shortly"
        return Refusal(
            code,
            f"{self.tp} is at leader epoch {self.leader_epoch} here, not {given}; {advice}",
        )

    def readable_end(self, isolation: FetchIsolation) -> Offset:
        """Clients may read what is below, followers everything."""
        if isolation is FetchIsolation.READ_COMMITTED:
            return self.log.last_stable_offset
        if isolation is FetchIsolation.LOG_END:
            return self.log.log_end_offset
        return self.log.high_watermark

    def find_divergence(self, offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """Where this log and a reader's part, if it read its last record in another history."""
        end = self.log.find_epoch_end(LeaderEpoch(last_fetched_epoch))
        if end is None:
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        return find_divergence(
            end, fetch_offset=Offset(offset), last_fetched_epoch=LeaderEpoch(last_fetched_epoch)
        )

    def statistics(self) -> PartitionStatistics:
        log = self.log
        return PartitionStatistics(
            tp=self.tp,
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

    def lead(self, state: PartitionState, now_ms: int) -> None:
        """From here on, or still, with a later epoch or another set of replicas."""
        is_same = self.leadership is not None and state.leader_epoch == self.leader_epoch
        if state.leader_epoch > self.log.latest_epoch:
            self.log.begin_epoch(state.leader_epoch)
        if not is_same:
            self.epoch_start_offset = self.log.log_end_offset
        known = self.followers if is_same else {}
        self.followers = {
            each: known.get(each) or first_progress(is_in_sync=each in state.in_sync, now_ms=now_ms)
            for each in state.replicas
            if each != self.broker_id
        }
        self.leadership = self.leadership or PartitionLeadership()
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
        self.followers = {}
        self.proposal = None
        self._settle()

    def _take(self, state: PartitionState) -> None:
        self.state = state
        self.proposal = None  # it was for another state
        self._settle()
        self.leader_epoch = state.leader_epoch  # last: the epoch vouches for all the rest

    def apply_config(self, rules: TopicConfig) -> None:
        if self.log.config != rules.served:
            self.log.reconfigure(rules.served)
        self.min_in_sync = rules.min_in_sync
        self.is_synchronous = rules.is_synchronous
        self._settle()

    def _settle(self) -> None:
        """What appends ask each time. No more replicas are asked for than there are."""
        stored, proposed = self.state.in_sync, self._proposed
        wanted = min(self.min_in_sync, len(self.state.replicas))
        self.under_min_isr = self.is_leader and len(assured(stored, proposed)) < wanted
        self.is_single_replica = self.is_leader and not self.followers and not self.is_synchronous
        self.accepts_writes = self.is_leader and not self.under_min_isr and not self.is_internal
        members = maximal(stored, proposed)
        self._catching_up = self._catching_up.difference(members).intersection(self.followers)
        self._maximal_isr = tuple(
            each for each in self.followers if each in members or each in self._catching_up
        )

    # -- who is in sync: changed by `InSyncUpkeep` while leading ----------------------------

    @property
    def _proposed(self) -> tuple[BrokerId, ...] | None:
        if self.proposal is None:
            return None
        return tuple(each.broker_id for each in self.proposal.in_sync)

    def propose(self, in_sync: tuple[BrokerId, ...]) -> AlterPartitionProposal:
        """From here on both sets count, until the answer or the next order."""
        epochs = {each: progress.broker_epoch for each, progress in self.followers.items()}
        self.proposal = AlterPartitionProposal(
            self.topic_id,
            self.tp.partition,
            self.leader_epoch,
            self.state.partition_epoch,
            tuple(IsrMember(each, epochs.get(each, NO_BROKER_EPOCH)) for each in in_sync),
        )
        self._settle()
        return self.proposal

    def withdraw(self) -> None:
        """The proposal was refused, for sure."""
        self.proposal = None
        self._settle()

    def try_adopt(self, stored: AlterPartitionState) -> bool:
        """Take the controller's word for who is in sync, if it is about this time of leading."""
        is_mine = stored.leader == self.broker_id and stored.leader_epoch == self.leader_epoch
        if not is_mine or stored.partition_epoch <= self.state.partition_epoch:
            return False
        self._take(
            self.state._replace(in_sync=stored.in_sync, partition_epoch=stored.partition_epoch)
        )
        return True

    # -- how far: changed by `Replicas` while leading ----------------------------------------

    def update_follower_end_offset(
        self,
        follower: BrokerId,
        end_offset: Offset,
        *,
        broker_epoch: BrokerEpoch,
        limits: LagLimits,
        now_ms: int,
    ) -> None:
        """A follower has everything below, on its disk if the topic is synchronous."""
        before = self.followers.get(follower)
        if before is None:
            return
        self.followers[follower] = progress_after_fetch(
            before,
            offset=end_offset,
            leader_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        if follower not in self.state.in_sync:
            self.update_catching_up(limits, now_ms)

    def update_catching_up(self, limits: LagLimits, now_ms: int) -> None:
        """Who is about to be in sync, as of now: that ends with time, too."""
        awaited = frozenset(
            each
            for each, progress in self.followers.items()
            if each not in self.state.in_sync
            and is_keeping_up(
                progress,
                leader_end_offset=self.log.log_end_offset,
                limits=limits,
                now_ms=now_ms,
            )
        )
        if awaited != self._catching_up:
            self._catching_up = awaited
            self._settle()

    def forget_ends(self, followers: Iterable[BrokerId], now_ms: int) -> None:
        """Of lives that are over: nobody waits for what they will not fetch."""
        gone = frozenset(followers)
        for each in gone:
            self.followers[each] = first_progress(is_in_sync=False, now_ms=now_ms)
        self._catching_up -= gone
        self._settle()

    def advance_high_watermark(self) -> bool:
        """As far as every replica in sync is known to be; True if it moved. Only while leading."""
        log = self.log
        own_end = log.durable_offset if self.is_synchronous else log.log_end_offset
        before = log.high_watermark
        followers = self.followers
        reached = next_high_watermark(
            before, (own_end, *[followers[each].end_offset for each in self._maximal_isr])
        )
        if reached == before:
            return False
        log.advance_high_watermark(reached)
        return True
