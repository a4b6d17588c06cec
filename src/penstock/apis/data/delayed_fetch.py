"""A fetch in progress: whether there is enough to answer, and the response itself.

The one place where fetch responses are built, at once, after a wait or at the deadline
(KAFKA-5376). Invariants: a partition's bounds are taken once per look, and every lease is released
once: by the network with the response, or here if none leaves.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.apis.api import Request
from penstock.apis.data.fetch_response import (
    FIRST_WITH_HINTS,
    NO_REPLICA,
    FetchPartitionData,
    encode_fetch_response,
)
from penstock.apis.data.fetch_target import FetchTarget, find_target, is_current
from penstock.apis.data.leader_hints import NO_HINT, LeaderHint, find_leader_hint, find_nodes
from penstock.apis.fetch_sessions import FetchContext, RequestedPartition
from penstock.apis.throttling import find_throttle
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TopicPartition
from penstock.model.slices import FileRun, Releasable
from penstock.model.values import new_tuple
from penstock.replication.partition import FetchIsolation, Partition
from penstock.replication.replica_selector import find_read_replica
from penstock.replication.storage_errors import as_refusal
from penstock.replication.visible_end import VisibleEnd
from penstock.storage.engine import Read
from penstock.storage.errors import StorageError
from penstock.storage.transaction_index import AbortedTxn

if TYPE_CHECKING:
    from penstock.apis.services import Services

_UNKNOWN: Final = Offset(-1)
_NONE: Final = ErrorCode.NONE
_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Leases:
    """The leases of all partitions of a response, as one."""

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
    """A delayed operation, satisfied by min_bytes or by an error, which is returned at once."""

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
        self._follower = follower  # NO_BROKER: a client fetches
        self._rack = rack  # of a consumer that may also read from followers; None: leaders only
        # Readable bytes at the last look, by partition, with the end offset they reach to.
        self._sizes: dict[TopicPartition, tuple[Offset, int]] = {}

    def watched(self) -> Iterator[TopicPartition]:
        return (target.tp for target in self._targets if target.tp is not None)

    # -- is there enough? ------------------------------------------------------------------

    def is_satisfied(self) -> bool:
        """Offsets are enough for min_bytes=1, the usual case; else sizes are looked up."""
        missing_bytes = self._min_bytes
        if missing_bytes <= 0:
            return True
        for target in self._targets:
            if target.partition is not None and not is_current(target):
                target = self._find_again(target)
            requested, _, _, partition, _, _, diverging = target
            if partition is None or diverging is not None:
                return True
            try:
                end = partition.readable_end(self._isolation)
                offset = requested.offset
                if not partition.log_start_offset <= offset <= partition.log_end_offset:
                    return True
                if self._rack and self._find_read_replica(partition, requested) != NO_REPLICA:
                    return True
                if end <= offset or self._is_throttled(partition):
                    continue
                if missing_bytes > 1:
                    missing_bytes -= self._size_of(partition, requested, end)
                else:
                    missing_bytes = 0
            except (Refusal, StorageError, OSError):
                return True  # the response carries the error
            if missing_bytes <= 0:
                return True
        return False

    def _find_again(self, target: FetchTarget) -> FetchTarget:
        """Look the partition up after a leadership change. A follower's fetch names its leader
        epoch, so it ends with an error here."""
        assert target.tp is not None
        return find_target(
            self._services, target.requested, target.tp, may_be_follower=self._rack is not None
        )

    def _size_of(self, partition: Partition, requested: RequestedPartition, end: Offset) -> int:
        """Cached, so that an append measures its own partition again and not all of them."""
        cached = self._sizes.get(partition.tp)
        if cached is not None and cached[0] == end:
            return cached[1]
        limit = max(0, min(requested.max_bytes, self._max_bytes))
        read = partition.log.read(
            Offset(requested.offset), below=end, max_bytes=limit, at_least_one=True
        )
        read.lease.release()
        self._sizes[partition.tp] = end, read.size_bytes
        return read.size_bytes

    # -- the response ----------------------------------------------------------------------

    def complete(self) -> None:
        leases = Leases()
        try:
            request = self._request
            answers = self._read_all(leases)
            if self._services.quotas.is_active and not self._try_use_quota(answers):
                leases.release()
                head, partitions = self._context.hold_back(), answers[:0]
            else:
                head, partitions = self._context.choose(answers)
            hints = [data.hint for data in partitions if data.hint is not NO_HINT]
            parts = encode_fetch_response(
                request.version,
                error=head.error,
                session_id=head.session_id,
                partitions=partitions,
                nodes=find_nodes(request, self._services, hints) if hints else (),
            )
            frame = request.frame_body(parts)
        except BaseException:
            leases.release()
            raise
        request.in_flight.reply(frame, leases)

    def expire(self) -> None:
        self.complete()

    def _try_use_quota(self, answers: Sequence[FetchPartitionData]) -> bool:
        """False: nothing of it is sent now. An exempt follower and a client without a quota may
        always."""
        throttle = find_throttle(self._request)
        records = [data.records for data in answers]
        sizes = [0 if run is None else run.size_bytes for run in records]
        if throttle is None or throttle.try_use_consumer_bytes(sum(sizes)):
            return True
        for target, size in zip(self._targets, sizes, strict=True):
            if target.partition is not None:
                target.partition.traffic.bytes_out -= size
        return False

    def _read_all(self, leases: Leases) -> list[FetchPartitionData]:
        """Read in session order until max_bytes is used up; the first batch is sent whole."""
        partitions: list[FetchPartitionData] = []
        left_bytes = self._max_bytes
        is_first = True
        for target in self._targets:
            if target.partition is not None and not is_current(target):
                target = self._find_again(target)
            if target.partition is None:
                partitions.append(self._refuse(target, target.error))
                continue
            try:
                data = self._read(target, target.partition, left_bytes, is_first, leases)
            except Refusal as refusal:
                data = self._refuse(target, refusal.code)
            if data.records is not None:
                is_first = False
                left_bytes -= data.records.size_bytes
            partitions.append(data)
        return partitions

    def _read(
        self,
        target: FetchTarget,
        partition: Partition,
        left_bytes: int,
        is_first: bool,
        leases: Leases,
    ) -> FetchPartitionData:
        requested, diverging = target.requested, target.diverging
        log = partition.log
        partition.traffic.fetches += 1
        log_start, start = log.log_start_offset, Offset(requested.offset)
        high_watermark, last_stable = log.high_watermark, log.last_stable_offset
        isolation = self._isolation
        if partition.visible_end is not None and isolation is not FetchIsolation.LOG_END:
            visible = self._find_visible_end(partition, partition.visible_end)
            high_watermark, last_stable = min(high_watermark, visible), min(last_stable, visible)
        is_committed = isolation is FetchIsolation.READ_COMMITTED
        below = last_stable if is_committed else high_watermark
        if isolation is FetchIsolation.LOG_END:
            below = start if self._is_throttled(partition) else log.log_end_offset
        if diverging is None and not log_start <= start <= log.log_end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            self._request.count_error(code)
            partition.traffic.failed_fetches += 1
            return FetchPartitionData(requested, code, high_watermark, last_stable, log_start)
        if self._rack:
            replica = self._find_read_replica(partition, requested)
            if replica != NO_REPLICA:
                marks = high_watermark, last_stable, log_start
                return FetchPartitionData(
                    requested, _NONE, *marks, aborted=None, read_replica=replica
                )
        limit = max(0, min(requested.max_bytes, left_bytes))
        read = None
        if start < below and diverging is None and (limit or is_first):
            read = self._slice(partition, start, below, limit, is_first)
        if read is None:
            records = None
            aborted: Sequence[AbortedTxn] | None = () if is_committed else None
        else:
            leases.add(read.lease)
            records = FileRun(read.slices)
            if isolation is FetchIsolation.LOG_END:
                self._services.replicas.quota.note_sent(
                    partition, records.size_bytes, self._follower
                )
                partition.traffic.replication_bytes_out += records.size_bytes
            else:
                partition.traffic.bytes_out += records.size_bytes
            aborted = log.aborted(start, read.end_offset) if is_committed else None
        values = (requested, _NONE, high_watermark, last_stable, log_start)
        return new_tuple(
            FetchPartitionData, (*values, records, aborted, diverging, NO_HINT, NO_REPLICA)
        )

    def _slice(
        self, partition: Partition, start: Offset, below: Offset, limit: int, is_first: bool
    ) -> Read | None:
        """None: not even one batch may be sent."""
        try:
            read = partition.log.read(
                start,
                below=below,
                max_bytes=limit,
                at_least_one=is_first,
                skip_empty=self._isolation is not FetchIsolation.LOG_END,
            )
        except StorageError as error:
            raise as_refusal(error) from error
        except OSError as error:
            raise self._report_unreadable(partition, start, error) from error
        if read.slices:
            return read
        read.lease.release()
        return None

    def _find_visible_end(self, partition: Partition, visible_end: VisibleEnd) -> Offset:
        """Clients are not told of more than they may read."""
        try:
            return visible_end.find()
        except StorageError as error:
            raise as_refusal(error) from error
        except OSError as error:
            raise self._report_unreadable(partition, partition.log_start_offset, error) from error

    def _report_unreadable(self, partition: Partition, start: Offset, error: OSError) -> Refusal:
        self._services.logger.error(
            "read_failed", f"{partition.tp} cannot be read at {start}: {error}"
        )
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR)

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the replication throttle applies; only to followers."""
        if self._follower == NO_BROKER:
            return False
        return self._services.replicas.quota.holds_back(partition, self._follower)

    def _find_read_replica(self, partition: Partition, requested: RequestedPartition) -> int:
        replica = find_read_replica(
            partition.state,
            partition.followers,
            self._services.metadata.brokers,
            rack=self._rack or "",
            offset=Offset(requested.offset),
        )
        return NO_REPLICA if replica is None else replica

    def _refuse(self, target: FetchTarget, code: ErrorCode) -> FetchPartitionData:
        self._request.count_error(code)
        topic = "" if target.tp is None else target.tp.topic
        traffic = self._services.replicas.traffic.find(topic)
        traffic.fetches += target.partition is None  # else counted by `_read`
        traffic.failed_fetches += 1
        unknown = (_UNKNOWN, _UNKNOWN, _UNKNOWN)
        return FetchPartitionData(target.requested, code, *unknown, hint=self._hint(target, code))

    def _hint(self, target: FetchTarget, code: ErrorCode) -> LeaderHint:
        if code not in _HINTED or target.tp is None or self._request.version < FIRST_WITH_HINTS:
            return NO_HINT
        return find_leader_hint(self._services, target.tp)
