"""A fetch that is under way: is there enough for an answer, and the answer itself.

The one place where answers are built, whether at once, after a wait or at its end (KAFKA-5376).
Invariants: the bounds of a partition are taken once per look, and every lease is released once:
by the network with the answer, or here if none leaves.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.apis.api import Request
from penstock.apis.data.fetch_response import (
    FIRST_WITH_HINTS,
    NO_REPLICA,
    FetchPartitionData,
    encode_fetch_response,
)
from penstock.apis.data.fetch_sessions import FetchContext, RequestedPartition
from penstock.apis.data.leader_hints import NO_HINT, LeaderHint, find_leader_hint, find_nodes
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TopicPartition
from penstock.model.slices import FileRun, Releasable
from penstock.model.values import new_tuple
from penstock.replication.partition import FetchIsolation, Partition
from penstock.replication.replica_selector import find_read_replica
from penstock.replication.storage_errors import as_refusal
from penstock.storage.engine import Read
from penstock.storage.errors import StorageError
from penstock.storage.transaction_index import AbortedTxn

if TYPE_CHECKING:
    from penstock.apis.services import Services

_UNKNOWN = Offset(-1)
_NONE = ErrorCode.NONE
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchTarget(NamedTuple):
    asked: RequestedPartition
    partition: TopicPartition | None  # None: not looked at, for `error`
    error: ErrorCode


class Leases:
    """Those of all partitions of an answer, as one."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Releasable] = []

    def add(self, lease: Releasable) -> None:
        self._held.append(lease)

    def release(self) -> None:
        held, self._held = self._held, []
        for lease in held:
            lease.release()


class DelayedFetch:
    """A `waiting.Operation`: satisfied by enough bytes, or by an error that should not wait."""

    __slots__ = (
        "_context",
        "_follower",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_rack",
        "_request",
        "_services",
        "_sizes",
        "_targets",
    )

    def __init__(
        self,
        request: Request,
        services: "Services",
        context: FetchContext,
        targets: Sequence[FetchTarget],
        *,
        isolation: FetchIsolation,
        min_bytes: int,
        max_bytes: int,
        follower: BrokerId = NO_BROKER,
        rack: str | None = None,
    ) -> None:
        self._request = request
        self._services = services
        self._context = context
        self._targets = targets
        self._isolation = isolation
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._follower = follower  # NO_BROKER: a client asks
        self._rack = rack  # of a reader that followers may serve, too; None: only leaders may
        # What was there to read at the last look, by partition, up to its end at the time.
        self._sizes: dict[TopicPartition, tuple[Offset, int]] = {}

    def watched(self) -> Iterator[TopicPartition]:
        return (each.partition for each in self._targets if each.partition is not None)

    # -- is there enough? ------------------------------------------------------------------

    def is_satisfied(self) -> bool:
        """Offsets tell where a byte is enough, as it mostly is; else sizes are looked up."""
        missing_bytes = self._min_bytes
        if missing_bytes <= 0:
            return True
        for asked, name, _ in self._targets:
            if name is None:
                return True
            try:
                partition = self._get(asked, name)
                end = partition.readable_end(self._isolation)
                if asked.last_fetched_epoch >= 0 and partition.find_divergence(
                    asked.offset, asked.last_fetched_epoch
                ):
                    return True
                if not partition.log_start_offset <= asked.offset <= partition.log_end_offset:
                    return True
                if self._rack and self._find_read_replica(partition, asked) != NO_REPLICA:
                    return True
                if end <= asked.offset or self._is_held_back(partition):
                    continue
                if missing_bytes > 1:
                    missing_bytes -= self._size_of(partition, asked, end)
                else:
                    missing_bytes = 0
            except (Refusal, StorageError, OSError):
                return True  # and the answer says which
            if missing_bytes <= 0:
                return True
        return False

    def _size_of(self, partition: Partition, asked: RequestedPartition, end: Offset) -> int:
        """Each append makes one partition be looked at again, not all of them."""
        known = self._sizes.get(partition.tp)
        if known is not None and known[0] == end:
            return known[1]
        limit = max(0, min(asked.max_bytes, self._max_bytes))
        read = partition.log.read(
            Offset(asked.offset), below=end, max_bytes=limit, at_least_one=True
        )
        read.lease.release()
        self._sizes[partition.tp] = end, read.size_bytes
        return read.size_bytes

    # -- the answer ------------------------------------------------------------------------

    def complete(self) -> None:
        leases = Leases()
        try:
            chosen, answers = self._context.choose(self._read_all(leases))
            request = self._request
            hints = [each.hint for each in answers if each.hint is not NO_HINT]
            parts = encode_fetch_response(
                request.version,
                error=chosen.error,
                session_id=chosen.session_id,
                answers=answers,
                nodes=find_nodes(request, self._services, hints) if hints else (),
            )
            frame = request.frame_body(parts)
        except BaseException:
            leases.release()
            raise
        request.in_flight.reply(frame, leases)

    def expire(self) -> None:
        self.complete()

    def _read_all(self, leases: Leases) -> list[FetchPartitionData]:
        """In the order of the session, so long as the limit allows; the first batch goes whole."""
        answers: list[FetchPartitionData] = []
        left_bytes = self._max_bytes
        is_first = True
        for asked, name, error in self._targets:
            if name is None:
                answers.append(_refuse(asked, error))
                continue
            try:
                answer = self._read(asked, name, left_bytes, is_first, leases)
            except Refusal as refusal:
                answer = _refuse(asked, refusal.code, self._find_hint(refusal.code, name))
            if answer.records is not None:
                is_first = False
                left_bytes -= len(answer.records)
            answers.append(answer)
        return answers

    def _read(
        self,
        asked: RequestedPartition,
        name: TopicPartition,
        left_bytes: int,
        is_first: bool,
        leases: Leases,
    ) -> FetchPartitionData:
        partition = self._get(asked, name)
        log = partition.log
        log_start, start = log.log_start_offset, Offset(asked.offset)
        high_watermark, last_stable = log.high_watermark, log.last_stable_offset
        isolation = self._isolation
        is_committed = isolation is FetchIsolation.READ_COMMITTED
        below = last_stable if is_committed else high_watermark
        if isolation is FetchIsolation.LOG_END:
            below = start if self._is_held_back(partition) else log.log_end_offset
        diverging = None
        if asked.last_fetched_epoch >= 0:
            diverging = partition.find_divergence(start, asked.last_fetched_epoch)
        if diverging is None and not log_start <= start <= log.log_end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            return FetchPartitionData(asked, code, high_watermark, last_stable, log_start)
        if self._rack:
            replica = self._find_read_replica(partition, asked)
            if replica != NO_REPLICA:
                marks = high_watermark, last_stable, log_start
                return FetchPartitionData(asked, _NONE, *marks, aborted=None, read_replica=replica)
        limit = max(0, min(asked.max_bytes, left_bytes))
        read = None
        if start < below and diverging is None and (limit or is_first):
            read = self._slice(partition, start, below, limit, is_first)
        if read is None:
            records = None
            aborted: Sequence[AbortedTxn] | None = () if is_committed else None
        else:
            leases.add(read.lease)
            if isolation is FetchIsolation.LOG_END:
                self._services.replicas.quota.note_sent(partition, read.size_bytes)
            records = FileRun(read.slices)
            aborted = log.aborted(start, read.end_offset) if is_committed else None
        known = (asked, _NONE, high_watermark, last_stable, log_start)
        return new_tuple(
            FetchPartitionData, (*known, records, aborted, diverging, NO_HINT, NO_REPLICA)
        )

    def _slice(
        self, partition: Partition, start: Offset, below: Offset, limit: int, is_first: bool
    ) -> Read | None:
        """None where not even one batch may be sent."""
        try:
            read = partition.log.read(start, below=below, max_bytes=limit, at_least_one=is_first)
        except StorageError as error:
            raise as_refusal(error) from error
        except OSError as error:
            self._services.report(f"{partition.tp} cannot be read at {start}: {error}")
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if read.slices:
            return read
        read.lease.release()
        return None

    def _get(self, asked: RequestedPartition, name: TopicPartition) -> Partition:
        partition = self._services.replicas.get(name)
        if asked.topic is not name.topic and asked.topic not in (partition.topic_id, name.topic):
            raise Refusal(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self._rack is None:
            partition.check_leader(asked.leader_epoch)
        else:
            partition.check_reader(asked.leader_epoch)
        return partition

    def _is_held_back(self, partition: Partition) -> bool:
        """A follower that is throttled, for now."""
        if self._follower == NO_BROKER:
            return False
        return self._services.replicas.quota.holds_back(partition, self._follower)

    def _find_read_replica(self, partition: Partition, asked: RequestedPartition) -> int:
        found = find_read_replica(
            partition.state,
            partition.followers,
            self._services.metadata.brokers,
            rack=self._rack or "",
            offset=Offset(asked.offset),
        )
        return NO_REPLICA if found is None else found

    def _find_hint(self, code: ErrorCode, name: TopicPartition) -> LeaderHint:
        if code in _HINTED and self._request.version >= FIRST_WITH_HINTS:
            return find_leader_hint(self._services, name)
        return NO_HINT


def _refuse(
    asked: RequestedPartition, code: ErrorCode, hint: LeaderHint = NO_HINT
) -> FetchPartitionData:
    return FetchPartitionData(asked, code, _UNKNOWN, _UNKNOWN, _UNKNOWN, hint=hint)
