"""A follower's fetch at a simulated leader: what the production's handler does, without a network.

Bounds, fencing and purgatory are the production's.
"""

from collections.abc import Callable, Mapping, Sequence

from penstock.client.data_calls import FetchedPartition, FetchFrom
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset
from penstock.replication.partition import FetchIsolation, Partition
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.leader_epoch_cache import OffsetAndEpoch
from penstock.storage.log import SegmentedLog
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.checker import read_bytes

_NOTHING = memoryview(b"")


class DelayedFollowerFetch:
    """A delayed fetch in the purgatory."""

    def __init__(
        self,
        disk: SimulatedDisk,
        replicas: ReplicaManager,
        wanted: Sequence[FetchFrom],
        refused: Mapping[int, ErrorCode],
        done: Callable[[list[FetchedPartition]], None],
    ) -> None:
        self._disk = disk
        self._replicas = replicas
        self._wanted = wanted
        self._refused = refused
        self._done = done

    def is_satisfied(self) -> bool:
        return bool(self._refused) or any(self._has_data(fetch) for fetch in self._wanted)

    def complete(self) -> None:
        self._done([self._answer(index, fetch) for index, fetch in enumerate(self._wanted)])

    def expire(self) -> None:
        self.complete()

    def _has_data(self, fetch: FetchFrom) -> bool:
        try:
            partition, diverging = self._find(fetch)
        except Refusal:
            return True
        is_inside = partition.log_start_offset <= fetch.offset <= partition.log_end_offset
        has_more = partition.readable_end(FetchIsolation.LOG_END) > fetch.offset
        return diverging is not None or not is_inside or has_more

    def _answer(self, index: int, fetch: FetchFrom) -> FetchedPartition:
        if index in self._refused:
            return _refuse(fetch, self._refused[index])
        try:
            partition, diverging = self._find(fetch)
        except Refusal as refusal:
            return _refuse(fetch, refusal.code)
        is_inside = partition.log_start_offset <= fetch.offset <= partition.log_end_offset
        code = ErrorCode.NONE if is_inside or diverging else ErrorCode.OFFSET_OUT_OF_RANGE
        batches = _NOTHING
        if code is ErrorCode.NONE and diverging is None and fetch.offset < partition.log_end_offset:
            assert isinstance(partition.log, SegmentedLog)
            batches = read_bytes(self._disk, partition.log, fetch.offset, fetch.max_bytes)
        log = partition.log
        marks = log.high_watermark, log.last_stable_offset, log.log_start_offset
        return FetchedPartition(fetch.tp, code, *marks, (), batches, diverging)

    def _find(self, fetch: FetchFrom) -> tuple[Partition, OffsetAndEpoch | None]:
        partition = self._replicas.get(fetch.tp)
        partition.check_leader(fetch.leader_epoch)
        if fetch.last_fetched_epoch < 0:
            return partition, None
        return partition, partition.find_divergence(fetch.offset, fetch.last_fetched_epoch)


def _refuse(fetch: FetchFrom, code: ErrorCode) -> FetchedPartition:
    unknown = Offset(-1)
    return FetchedPartition(fetch.tp, code, unknown, unknown, unknown, (), _NOTHING)
