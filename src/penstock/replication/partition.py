"""One replica on this broker: role, leader epoch, ISR and high watermark.

Owned by the event loop; changed by `ReplicaManager` alone. Not the log, which it refers to.
Invariant: `leadership` is set exactly while this broker leads, and under one leadership the high
watermark never moves back.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionState, IsrMember
from penstock.model.cluster import (
    INTERNAL_TOPICS,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    PartitionState,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
)
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
from penstock.replication.topic_traffic import TopicTraffic
from penstock.replication.transaction_verification import Verifications
from penstock.replication.truncation import find_divergence
from penstock.replication.visible_end import VisibleEnd
from penstock.storage.engine import PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.leader_epoch_cache import OffsetAndEpoch

NO_STATE: Final = PartitionState(NO_BROKER, NO_LEADER_EPOCH, (), (), partition_epoch=-1)


class FetchIsolation(IntEnum):
    """How far a fetch may read; the first two have the protocol's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOG_END = 2  # followers only: no client can send it


class Role(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"  # no LeaderAndIsr yet, stopped, or the log has failed


class PartitionStatistics(NamedTuple):
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
    failure: str | None  # why its log is offline
    min_in_sync: int  # of acks=all, at most the number of replicas
    is_reassigning: bool
    size_bytes: int
    segments: int
    # Appended in the current leadership; `TrafficStatistics` of the topic lacks it.
    messages_in: int
    bytes_in: int
    visible_end: Offset  # of consumers: the high watermark, or less on a topic with a delay


class PartitionLeadership:
    """One uninterrupted leadership, over all of its leader epochs.

    A delayed write belongs to the leadership that appended it: a later one may have lost it.
    """

    __slots__ = (
        "_verifications",
        "durable_offset",
        "ended",
        "first_bytes",
        "first_offset",
        "high_watermark",
    )

    def __init__(self, log: PartitionLog) -> None:
        # Where the log was when the leadership began.
        self.first_offset, self.first_bytes = log.log_end_offset, log.appended_bytes
        self._verifications: Verifications | None = None  # built lazily
        self.ended: ErrorCode | None = None  # the error for writes that were not committed
        self.high_watermark = self.durable_offset = Offset(-1)  # when it ended

    @property
    def verifications(self) -> Verifications:
        """Transactions that are being verified with their coordinator."""
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications


class Partition:
    __slots__ = (
        "_catching_up",
        "_maximal_isr",
        "accepts_writes",
        "assignment_epoch",
        "broker_id",
        "damaged_at",
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
        "traffic",
        "under_min_isr",
        "visible_end",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        log: PartitionLog,
        config: TopicConfig,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.traffic = traffic or TopicTraffic()  # of all partitions of the topic
        self.tp = log.tp
        self.topic_id = log.topic_id
        self.log = log
        self.is_internal = log.tp.topic in INTERNAL_TOPICS
        self.damaged_at: Offset | None = None  # of a batch found damaged while this broker led
        self.failure: str | None = None  # why its log is offline; then it has no role
        self.state = NO_STATE
        self.assignment_epoch = -1  # of the LeaderAndIsr request with the replicas of `state`
        self.leader_epoch = NO_LEADER_EPOCH
        self.leadership: PartitionLeadership | None = None
        # While leading: the other replicas, in sync or not, and where the leader epoch began.
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.epoch_start_offset = Offset(0)
        self.proposal: AlterPartitionProposal | None = None  # in flight
        self._catching_up: frozenset[BrokerId] = frozenset()  # not in sync, about to be
        self._maximal_isr: tuple[BrokerId, ...] = ()  # followers that the high watermark waits for:
        # members of the stored or the proposed ISR, and those catching up
        self.is_flushing = False  # a flush of `ReplicaManager` is in flight
        self.min_in_sync = config.min_in_sync
        self.is_synchronous = config.is_synchronous
        self.under_min_isr = False  # leads with fewer in-sync replicas than acks=all needs
        self.is_single_replica = False  # leads alone: whatever is appended is committed
        self.accepts_writes = False  # leads, and clients' appends need no further check
        self.visible_end: VisibleEnd | None = None  # of a topic with a delay

    # -- reading and writing ---------------------------------------------------------------

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
        """Refuse unless this broker leads in the client's leader epoch (-1: the client has
        none)."""
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
        """Like `check_leader`, but a follower passes, too: both serve committed records
        (KIP-392)."""
        if self.leadership is not None or self.role is Role.NONE:
            self.check_leader(current_leader_epoch)
        elif 0 <= current_leader_epoch != self.leader_epoch:
            raise self._refuse_epoch(current_leader_epoch)

    def check_follower(self, follower: BrokerId) -> None:
        if follower not in self.followers:
            raise Refusal(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {follower} is not a replica of {self.tp}"
            )

    def _refuse_epoch(self, requested: int) -> Refusal:
        is_old = requested < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        advice = "refresh the metadata" if is_old else "try again shortly"
        return Refusal(
            code,
            f"{self.tp} is at leader epoch {self.leader_epoch} here, not {requested}; {advice}",
        )

    def readable_end(self, isolation: FetchIsolation) -> Offset:
        """Clients read up to the high watermark or last stable offset, and not past the visible
        end; followers to the log end."""
        if isolation is FetchIsolation.LOG_END:
            return self.log.log_end_offset
        is_committed = isolation is FetchIsolation.READ_COMMITTED
        end = self.log.last_stable_offset if is_committed else self.log.high_watermark
        return end if self.visible_end is None else min(end, self.visible_end.find_and_wake())

    def visible_high_watermark(self) -> Offset:
        """The high watermark that clients are told."""
        end = self.log.high_watermark
        return end if self.visible_end is None else min(end, self.visible_end.find())

    def on_truncated(self) -> None:
        if self.visible_end is not None:
            self.visible_end.reset()

    def find_divergence(self, offset: int, last_fetched_epoch: int) -> OffsetAndEpoch | None:
        """Where a reader's log diverges from this one, if its last record is not in this log."""
        end = self.log.find_epoch_end(LeaderEpoch(last_fetched_epoch))
        if end is None:
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        return find_divergence(
            end, fetch_offset=Offset(offset), last_fetched_epoch=LeaderEpoch(last_fetched_epoch)
        )

    def find_time_of(self, offset: Offset) -> TimestampMs | None:
        """When the first record from `offset` on was written (`PartitionLog.find_time_of`). None:
        consumers do not see one, it has no timestamp, or the log cannot be read."""
        if self.failure is not None:
            return None
        try:
            if offset >= self.visible_high_watermark():
                return None
            return self.log.find_time_of(offset)
        except (StorageError, OSError):
            return None  # a log that cannot be read is reported elsewhere

    def statistics(self) -> PartitionStatistics:
        log, state = self.log, self.state
        messages_in, bytes_in = self._appended()
        return PartitionStatistics(
            self.tp,
            self.topic_id,
            self.role,
            state.leader,
            self.leader_epoch,
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
            state.in_sync,
            state.replicas,
            self.failure,
            min(self.min_in_sync, len(state.replicas)),
            bool(state.adding or state.removing),
            log.size_bytes,
            log.segment_count,
            messages_in,
            bytes_in,
            self._visible_for_statistics(),
        )

    def _visible_for_statistics(self) -> Offset:
        try:
            return self.visible_high_watermark()
        except (StorageError, OSError):
            return self.log.high_watermark  # a log that cannot be read is reported elsewhere

    @property
    def role(self) -> Role:
        if self.leadership is not None:
            return Role.LEADER
        has_none = self.state is NO_STATE or self.failure is not None
        return Role.NONE if has_none else Role.FOLLOWER

    # -- changed by `ReplicaManager` -------------------------------------------------------

    def lead(self, state: PartitionState, now_ms: int) -> None:
        """Become leader, or stay it with a later leader epoch or other replicas."""
        is_same = self.leadership is not None and state.leader_epoch == self.leader_epoch
        if state.leader_epoch > self.log.latest_epoch:
            self.log.begin_epoch(state.leader_epoch)
        if not is_same:
            self.epoch_start_offset = self.log.log_end_offset
        self._set_followers(state, self.followers if is_same else {}, now_ms)
        self.leadership = self.leadership or PartitionLeadership(self.log)
        self.assignment_epoch = state.partition_epoch
        self._set_state(state)

    def _set_followers(
        self, state: PartitionState, progress: Mapping[BrokerId, FollowerProgress], now_ms: int
    ) -> None:
        self.followers = {
            replica: progress.get(replica)
            or first_progress(is_in_sync=replica in state.in_sync, now_ms=now_ms)
            for replica in state.replicas
            if replica != self.broker_id
        }

    def has_overtaken(self, state: PartitionState) -> bool:
        """Whether it leads in this leader epoch and knows an ISR that is as new, perhaps from an
        AlterPartition response. A proposal may be about to change it, or have changed it."""
        is_mine = self.is_leader and state.leader == self.broker_id
        is_same = is_mine and state.leader_epoch == self.leader_epoch
        return is_same and state.partition_epoch <= self.state.partition_epoch

    def try_take_replicas(self, late: PartitionState, now_ms: int) -> bool:
        """Take the replicas alone of a LeaderAndIsr request that is overtaken: AlterPartition
        responses bring none. A proposal stays pending: the controller may have stored it."""
        if late.partition_epoch <= self.assignment_epoch:
            return False
        self.assignment_epoch = late.partition_epoch
        self.state = self.state._replace(
            replicas=late.replicas, adding=late.adding, removing=late.removing
        )
        self._set_followers(self.state, self.followers, now_ms)
        self._update_derived()
        return True

    def follow(self, state: PartitionState) -> None:
        self._end_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.assignment_epoch = state.partition_epoch
        self._set_state(state)

    def stop(self) -> None:
        """No role until the next LeaderAndIsr request."""
        self.follow(NO_STATE)

    def fail(self, failure: str) -> None:
        """The log is offline until a restart."""
        self.failure = failure
        self._end_leadership(ErrorCode.KAFKA_STORAGE_ERROR)

    def _end_leadership(self, code: ErrorCode) -> None:
        """Delayed writes succeed as far as it got; the others get the code."""
        if self.leadership is not None:
            self.leadership.high_watermark = self.log.high_watermark
            self.leadership.durable_offset = self.log.durable_offset
            self.leadership.ended = code
            messages, bytes_in = self._appended()
            self.traffic.messages_in += messages
            self.traffic.bytes_in += bytes_in
        self.leadership = None
        self.followers = {}
        self.proposal = None
        self._update_derived()

    def _appended(self) -> tuple[int, int]:
        """Records and bytes that were appended in this leadership: a leader's log is never cut."""
        leadership, log = self.leadership, self.log
        if leadership is None:
            return 0, 0
        return (
            log.log_end_offset - leadership.first_offset,
            log.appended_bytes - leadership.first_bytes,
        )

    def _set_state(self, state: PartitionState) -> None:
        self.state = state
        self.proposal = None  # it was for the previous state
        self._update_derived()
        self.leader_epoch = state.leader_epoch  # set last: it publishes the fields above

    def apply_config(self, config: TopicConfig) -> None:
        if self.log.config != config.served:
            self.log.reconfigure(config.served)
        self.min_in_sync = config.min_in_sync
        self.is_synchronous = config.is_synchronous
        self._update_derived()

    def _update_derived(self) -> None:
        """The fields that every append reads. min.insync.replicas is capped at the replica
        count."""
        stored, proposed = self.state.in_sync, self._proposed
        required = min(self.min_in_sync, len(self.state.replicas))
        self.under_min_isr = self.is_leader and len(assured(stored, proposed)) < required
        self.is_single_replica = self.is_leader and not self.followers and not self.is_synchronous
        self.accepts_writes = self.is_leader and not self.under_min_isr and not self.is_internal
        members = maximal(stored, proposed)
        self._catching_up = self._catching_up.difference(members).intersection(self.followers)
        self._maximal_isr = tuple(
            follower
            for follower in self.followers
            if follower in members or follower in self._catching_up
        )

    # -- the ISR: changed by `IsrManager` while leading ------------------------------------

    @property
    def _proposed(self) -> tuple[BrokerId, ...] | None:
        if self.proposal is None:
            return None
        return tuple(member.broker_id for member in self.proposal.in_sync)

    def propose(self, in_sync: tuple[BrokerId, ...]) -> AlterPartitionProposal:
        """Both ISRs count until the response or the next LeaderAndIsr request."""
        epochs = {id_: progress.broker_epoch for id_, progress in self.followers.items()}
        self.proposal = AlterPartitionProposal(
            self.topic_id,
            self.tp.partition,
            self.leader_epoch,
            self.state.partition_epoch,
            tuple(IsrMember(id_, epochs.get(id_, NO_BROKER_EPOCH)) for id_ in in_sync),
        )
        self._update_derived()
        return self.proposal

    def withdraw(self) -> None:
        """The controller refused the proposal and stored nothing."""
        self.proposal = None
        self._update_derived()

    def try_adopt(self, stored: AlterPartitionState) -> bool:
        """Adopt the ISR that the controller stored, if it is for this leader epoch and newer."""
        is_mine = stored.leader == self.broker_id and stored.leader_epoch == self.leader_epoch
        if not is_mine or stored.partition_epoch <= self.state.partition_epoch:
            return False
        self._set_state(
            self.state._replace(in_sync=stored.in_sync, partition_epoch=stored.partition_epoch)
        )
        return True

    # -- progress: changed by `ReplicaManager` while leading -------------------------------

    def update_follower_end_offset(
        self,
        follower: BrokerId,
        end_offset: Offset,
        *,
        broker_epoch: BrokerEpoch,
        limits: LagLimits,
        now_ms: int,
    ) -> None:
        """The follower has everything below, flushed if the topic is synchronous."""
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
        """Recompute the followers about to join the ISR; it depends on the time, too."""
        catching_up = frozenset(
            follower
            for follower, progress in self.followers.items()
            if follower not in self.state.in_sync
            and is_keeping_up(
                progress,
                leader_end_offset=self.log.log_end_offset,
                limits=limits,
                now_ms=now_ms,
            )
        )
        if catching_up != self._catching_up:
            self._catching_up = catching_up
            self._update_derived()

    def forget_progress(self, followers: Iterable[BrokerId], now_ms: int) -> None:
        """Forget the progress of brokers that are gone, so that the high watermark does not wait
        for them."""
        gone = frozenset(followers)
        for follower in gone:
            self.followers[follower] = first_progress(is_in_sync=False, now_ms=now_ms)
        self._catching_up -= gone
        self._update_derived()

    def advance_high_watermark(self) -> bool:
        """Move to the smallest end offset of the maximal ISR, while leading; True if it moved."""
        log = self.log
        own_end = log.durable_offset if self.is_synchronous else log.log_end_offset
        before = log.high_watermark
        followers = self.followers
        reached = next_high_watermark(
            before, (own_end, *[followers[replica].end_offset for replica in self._maximal_isr])
        )
        if reached == before:
            return False
        log.advance_high_watermark(reached)
        return True
