"""Reads of many small batches that have those of other partitions between them."""

import pytest
from tests.unit.storage.commit_log.shared_log import SharedLog
from tests.unit.storage.several_logs import FIRST, SECOND

from penstock.model.ids import Offset
from penstock.model.slices import ScatteredSlices
from penstock.protocol.batch import iter_headers
from penstock.storage.commit_log.partition_log import MANY_BATCHES, CommitLogPartition
from penstock.storage.engine import Read

BATCHES = 6 * MANY_BATCHES  # more than a reader copies at a time


def alternating(shared: SharedLog, batches: int = BATCHES) -> CommitLogPartition:
    first, second = shared.create(FIRST), shared.create(SECOND)
    for _ in range(batches):
        shared.append(first)
        shared.append(second)
    return first


def base_offsets(shared: SharedLog, read: Read) -> list[int]:
    content = b"".join(shared.disk.pread(s.fd, s.length, s.position) for s in read.slices)
    assert len(content) == read.size_bytes
    return [header.base_offset for _, header in iter_headers(content)]


def read(log: CommitLogPartition, start: int, below: int, max_bytes: int) -> Read:
    return log.read(Offset(start), below=Offset(below), max_bytes=max_bytes, at_least_one=False)


@pytest.fixture(name="is_saved", params=[False, True], ids=["in memory", "in a file"])
def _is_saved(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_read_has_every_batch_below_its_end_and_within_its_bytes(is_saved: bool) -> None:
    shared = SharedLog(file_bytes=1 << 20)
    log = alternating(shared)
    size = log.size_bytes // BATCHES
    if is_saved:
        shared.run_jobs("checkpoint")
        assert log.queue.saved is not None
    for start in (0, 1, 2 * MANY_BATCHES, 2 * BATCHES - 5):
        for below in (2 * BATCHES, 2 * BATCHES - 1, 2 * MANY_BATCHES + 3, 4 * MANY_BATCHES):
            for max_bytes in (1 << 20, BATCHES * size, 70 * size, 70 * size - 1, size):
                if start >= below:
                    continue
                expected = [
                    offset
                    for offset in range(start - start % 2, 2 * BATCHES, 2)
                    if offset + 1 < below
                ][: max_bytes // size]
                got = read(log, start, below, max_bytes)
                assert base_offsets(shared, got) == expected
                assert got.end_offset == (expected[-1] + 2 if expected else start)
                got.lease.release()


def test_batches_with_others_between_them_are_columns_and_neighbours_one_slice() -> None:
    shared = SharedLog(file_bytes=1 << 20)
    log = alternating(shared)
    scattered = read(log, 0, 2 * BATCHES, 1 << 20)
    assert isinstance(scattered.slices, ScatteredSlices)
    assert len(scattered.slices) == BATCHES
    end = log.log_end_offset
    content = memoryview(
        bytearray().join(shared.disk.pread(s.fd, s.length, s.position) for s in scattered.slices)
    )
    follower = shared.create(FIRST._replace(partition=7))
    follower.append_as_follower(content, shared.now_ms)
    follower.home.write()
    follower.advance_high_watermark(end)
    neighbours = read(follower, 0, end, 1 << 20)
    assert len(neighbours.slices) == 1
    assert base_offsets(shared, neighbours) == base_offsets(shared, scattered)


def test_a_read_goes_on_over_the_files_of_a_log() -> None:
    shared = SharedLog(file_bytes=3000)
    log = alternating(shared)
    assert len(shared.commit_log_files()) > 5
    got = read(log, 0, 2 * BATCHES, 1 << 20)
    assert base_offsets(shared, got) == list(range(0, 2 * BATCHES, 2))
    got.lease.release()
