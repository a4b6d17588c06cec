"""Checks the invariants of a simulated partition and stops the run at the first violation.

Observes only. It knows every log by its record numbers, and all that was ever committed or
acknowledged.
"""

import zlib
from typing import TYPE_CHECKING

from penstock.controller.reassignment import is_reassigning, target_of
from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.replication.partition import Partition, PartitionLeadership
from penstock.storage.log import SegmentedLog
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.schedule import WALL_MS

if TYPE_CHECKING:
    from penstock.testing.simulation.broker import SimulatedBroker
    from penstock.testing.simulation.world import World

READ_BYTES = 1 << 20


class Violation(AssertionError):
    """An invariant is violated: what, where and when."""


class LogMirror:
    """The records of one log, by offset; read again only if the log has changed."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.numbers: list[int] = []
        self.agreed = 0  # this many records are verified to equal the committed ones
        self.high_watermark = Offset(0)
        self.leadership: PartitionLeadership | None = None
        self.seen: object = None  # at the last check
        self._disk = disk
        self._log: SegmentedLog | None = None
        self._generation = -1

    def refresh(self, log: SegmentedLog) -> bool:
        """True if the log was truncated. Another log is one of a replica that was deleted, and
        assigned again."""
        if log is not self._log:
            self._log, self._generation = log, -1
        was_truncated = self._generation not in (-1, log.generation) and bool(
            log.log_end_offset < len(self.numbers)
        )
        if self._generation != log.generation:
            self.numbers.clear()
            self.agreed = 0
            self._generation = log.generation
        while len(self.numbers) < log.log_end_offset:
            self._read_on(log)
        return was_truncated

    def _read_on(self, log: SegmentedLog) -> None:
        content = read_bytes(self._disk, log, Offset(len(self.numbers)), READ_BYTES)
        for _, header in iter_headers(content):
            if header.base_offset != len(self.numbers) or header.record_count != 1:
                raise Violation(f"the log has no record {len(self.numbers)}: {header}")
            self.numbers.append(header.base_timestamp - WALL_MS)


class InvariantChecker:
    def __init__(self, world: "World", tp: TopicPartition) -> None:
        self._world = world
        self._tp = tp
        self.committed: list[int] = []  # by offset; never changes, only grows
        self.acknowledged: dict[int, int] = {}  # offset -> number
        self.leader_changes = self.truncations = self.shrinks = self.answers = 0
        self.digest = 0  # of everything observed: equal for equal seeds
        self._acknowledged_by: dict[int, BrokerId] = {}  # leader epoch -> leader
        self.reassignments = 0  # finished
        self._stored = world.store.state(tp)

    # -- after everything that a broker did ------------------------------------------------

    def check(self, broker: "SimulatedBroker") -> None:
        partition = broker.replicas.find(self._tp)
        if partition is None:
            return
        log = partition.log
        assert isinstance(log, SegmentedLog)
        mirror = broker.mirrors[self._tp]
        marks = log.generation, log.log_start_offset, log.high_watermark, log.log_end_offset
        seen = *marks, partition.leadership, partition.leader_epoch, self._stored
        if seen == mirror.seen:
            return
        mirror.seen = seen
        if mirror.refresh(log):
            self.truncations += 1
        self._check_marks(broker, partition, mirror)
        self._check_committed(broker, partition, mirror)
        self._check_holds_all(broker, partition)
        self.note(f"{self._world.schedule.now_ms} {broker.broker_id} {marks}")

    def note(self, text: str) -> None:
        self.digest = zlib.crc32(text.encode(), self.digest)

    def _check_marks(
        self, broker: "SimulatedBroker", partition: Partition, mirror: LogMirror
    ) -> None:
        log = partition.log
        if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            raise self._violation(broker, "its offsets are out of order")
        is_same = partition.leadership is not None and partition.leadership is mirror.leadership
        if is_same and log.high_watermark < mirror.high_watermark:
            raise self._violation(broker, "its high watermark went back while it led")
        mirror.leadership, mirror.high_watermark = partition.leadership, log.high_watermark

    def _check_committed(
        self, broker: "SimulatedBroker", partition: Partition, mirror: LogMirror
    ) -> None:
        end = partition.high_watermark
        if end > len(self.committed):
            if partition.leadership is None:
                raise self._violation(broker, "a follower has committed what no leader has")
            self._agree(broker, mirror, len(self.committed))
            self.committed += mirror.numbers[len(self.committed) : end]
            self._check_members()
        self._agree(broker, mirror, end)

    def _agree(self, broker: "SimulatedBroker", mirror: LogMirror, end: int) -> None:
        """Its records below `end` are the committed ones."""
        if end <= mirror.agreed:
            return
        if mirror.numbers[mirror.agreed : end] != self.committed[mirror.agreed : end]:
            raise self._violation(broker, f"below {end} it has other records than were committed")
        mirror.agreed = end

    def _check_holds_all(self, broker: "SimulatedBroker", partition: Partition) -> None:
        """The stored leader and the stored ISR have every record that was ever committed, except
        for a member that has reported its loss, or is about to, and that nobody counts on."""
        stored = self._stored
        leads = partition.leadership is not None and partition.leader_epoch == stored.leader_epoch
        is_in_sync = broker.broker_id in stored.in_sync and not self._may_lack(broker)
        if leads or is_in_sync:
            if len(broker.mirrors[self._tp].numbers) < len(self.committed):
                role = "leads" if leads else "is in sync"
                raise self._violation(broker, f"it {role} without all committed records")
            self._agree(broker, broker.mirrors[self._tp], len(self.committed))

    def _may_lack(self, broker: "SimulatedBroker") -> bool:
        if not self._world.loses_data:
            return False
        return broker.epoch < 0 or bool(self._world.store.report(broker.broker_id).replicas)

    def _check_members(self) -> None:
        for broker in self._world.brokers.values():
            partition = broker.replicas.find(self._tp)
            if partition is not None:
                assert isinstance(partition.log, SegmentedLog)
                broker.mirrors[self._tp].refresh(partition.log)
                self._check_holds_all(broker, partition)

    # -- what brokers and controllers say --------------------------------------------------

    def on_acknowledged(
        self, broker: "SimulatedBroker", *, epoch: int, offset: int, number: int
    ) -> None:
        self.answers += 1
        leader = self._acknowledged_by.setdefault(epoch, broker.broker_id)
        if leader != broker.broker_id:
            raise self._violation(broker, f"broker {leader} has acknowledged in epoch {epoch}")
        self.acknowledged[offset] = number
        partition = broker.replicas.find(self._tp)
        if partition is not None:
            assert isinstance(partition.log, SegmentedLog)
            mirror = broker.mirrors[self._tp]
            mirror.refresh(partition.log)
            self._check_committed(broker, partition, mirror)
        if offset >= len(self.committed) or self.committed[offset] != number:
            raise self._violation(broker, f"record {number} is acknowledged, but not committed")

    def on_stored(self, *, is_current: bool) -> None:
        """A controller has written to the metadata store."""
        if not is_current:
            raise Violation(
                f"at {self._world.schedule.now_ms} ms: the metadata store accepted a write of a "
                f"deposed controller"
            )
        before, self._stored = self._stored, self._world.store.state(self._tp)
        self._check_replicas(before, self._stored)
        self.reassignments += is_reassigning(before) and not is_reassigning(self._stored)
        self.leader_changes += before.leader != self._stored.leader
        self.shrinks += len(self._stored.in_sync) < len(before.in_sync)
        self.note(f"{self._world.schedule.now_ms} {self._stored}")
        self._check_members()

    def _check_replicas(self, before: PartitionState, after: PartitionState) -> None:
        """Never fewer than the replication factor; an old one leaves when all new ones are in
        sync, and a new one that leaves is that of a reassignment that was cancelled."""
        factor = self._world.replication_factor
        if not len(target_of(after)) == factor <= len(set(after.replicas)) == len(after.replicas):
            raise self._wrongly_stored(f"{after.replicas} are not {factor} replicas")
        left = set(before.replicas).difference(after.replicas, before.adding)
        if left and not set(after.replicas) <= set(after.in_sync):
            raise self._wrongly_stored(f"{left} left before {after.replicas} were all in sync")

    def _wrongly_stored(self, what: str) -> Violation:
        return Violation(
            f"at {self._world.schedule.now_ms} ms, {self._tp}: {what}; stored: {self._stored}"
        )

    @property
    def stored(self) -> PartitionState:
        return self._stored

    # -- at the end, when all is well again ------------------------------------------------

    def check_settled(self) -> None:
        """All replicas are in sync and have exactly the committed records; no other broker has
        a log."""
        replicas = self._stored.replicas
        if set(self._stored.in_sync) != set(replicas) or is_reassigning(self._stored):
            raise Violation(
                f"{self._tp}: only {self._stored.in_sync} are in sync after all faults have ended; "
                f"stored: {self._stored}"
            )
        for broker in self._world.brokers.values():
            partition = broker.replicas.find(self._tp)
            # A log whose topic id was lost in a power cut is not deleted: it may be another's.
            topic_id = self._world.topic.topic_id
            has_log = partition is not None and partition.topic_id == topic_id
            if has_log != (broker.broker_id in replicas):
                raise self._violation(broker, f"it {'has' if has_log else 'lacks'} a replica")
            numbers = broker.mirrors[self._tp].numbers
            if has_log and numbers != self.committed:
                raise self._violation(
                    broker, f"it has {len(numbers)} records, {len(self.committed)} are committed"
                )
        for offset, number in self.acknowledged.items():
            if self.committed[offset] != number:
                raise Violation(f"record {number} was acknowledged at {offset} and is not there")

    def _violation(self, broker: "SimulatedBroker", what: str) -> Violation:
        partition = broker.replicas.find(self._tp)
        facts = "" if partition is None else str(partition.statistics())
        return Violation(
            f"at {self._world.schedule.now_ms} ms, broker {broker.broker_id}: {what}; "
            f"stored: {self._stored}; replica: {facts}"
        )


def read_bytes(disk: SimulatedDisk, log: SegmentedLog, start: Offset, max_bytes: int) -> memoryview:
    """The bytes that a fetch from `start` on would send."""
    read = log.read(start, below=log.log_end_offset, max_bytes=max_bytes, at_least_one=True)
    try:
        content = b"".join(
            disk.pread(piece.fd, piece.length, piece.position) for piece in read.slices
        )
    finally:
        read.lease.release()
    return memoryview(bytearray(content))
