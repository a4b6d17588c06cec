"""A control batch with a valid CRC and a malformed record fails only its own item."""

from tests.unit.storage.sample_logs import NOW_MS, Writer, open_engine

from penstock.model.ids import LeaderEpoch
from penstock.protocol.batch import stamp_offset_and_epoch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo
from penstock.storage.errors import CorruptRecords
from penstock.testing.simulated_disk import SimulatedDisk

DATA = "/data"


def malformed_marker() -> bytearray:
    return build_batch(
        [Record(0, NOW_MS, b"x", b"")],
        leader_epoch=0,
        producer_id=5,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def test_a_malformed_marker_is_rejected_without_affecting_other_items() -> None:
    disk = SimulatedDisk(DATA)
    engine = open_engine(DATA, disk=disk)
    writer, other = Writer(engine), Writer(engine, "other-0")
    for origin in (AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR):
        good = build_batch([Record(0, NOW_MS, None, b"good")])
        bad_item = AppendItem(writer.log, memoryview(malformed_marker()), LeaderEpoch(0), origin)
        good_item = AppendItem(other.log, memoryview(good), LeaderEpoch(0))
        bad, stored = engine.append([bad_item, good_item], NOW_MS)
        assert isinstance(bad, CorruptRecords)
        assert isinstance(stored, LogAppendInfo)
        assert writer.log.log_end_offset == 0
    assert disk.files()[f"{DATA}/t-0/{0:020d}.log"] == b""


def test_a_malformed_marker_in_the_log_does_not_prevent_opening() -> None:
    disk = SimulatedDisk(DATA)
    writer = Writer(open_engine(DATA, disk=disk))
    writer.transactional(5)
    batch = malformed_marker()
    stamp_offset_and_epoch(batch, 0, writer.log.log_end_offset, 0)
    survivor = disk.survivor_of_kill()
    descriptor = survivor.open(f"{DATA}/t-0/{0:020d}.log", 0o2002)  # O_RDWR | O_APPEND
    survivor.write(descriptor, batch)
    survivor.close(descriptor)
    reopened = Writer(open_engine(DATA, disk=survivor))
    assert reopened.log.log_end_offset == 3
    reopened.log.advance_high_watermark(reopened.log.log_end_offset)
    assert reopened.log.last_stable_offset == 0  # it ended nothing: the transaction is open
