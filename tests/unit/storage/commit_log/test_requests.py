"""Requests of several partitions that fail in the middle, and what the next one finds then."""

from errno import EMFILE

import pytest
from tests.unit.storage.commit_log.shared_log import SharedLog
from tests.unit.storage.commit_log.test_many_batches import BATCHES, alternating
from tests.unit.storage.several_logs import FIRST, NOW_MS, SECOND

from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.records import Record, build_batch
from penstock.storage.commit_log.partition_log import CommitLogPartition
from penstock.storage.engine import AppendItem


def item(log: CommitLogPartition, epoch: int) -> AppendItem:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")])
    return AppendItem(log, memoryview(batch), LeaderEpoch(epoch))


def test_what_is_acknowledged_after_an_unexpected_error_is_written() -> None:
    """Else it would wait in memory for the next request of several partitions."""
    shared = SharedLog()
    first, second = shared.create(FIRST), shared.create(SECOND)
    shared.engine.append([item(first, 1)], NOW_MS)
    with pytest.raises(AssertionError, match="former leader"):
        shared.engine.append([item(second, 1), item(first, 0)], NOW_MS)
    assert shared.engine.append([item(first, 1)], NOW_MS)[0].base_offset == 1  # type: ignore[union-attr]
    after = SharedLog(shared.disk.survivor_of_kill())
    assert [after.logs[tp].log_end_offset for tp in (FIRST, SECOND)] == [2, 1]


@pytest.mark.parametrize("max_bytes", [1 << 20, 300], ids=["many batches", "few"])
def test_a_read_that_finds_no_descriptor_leaves_no_lease(
    max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedLog(file_bytes=1 << 20)
    log = alternating(shared)
    (file,) = log.home.commit_log.files
    log._handles.close(file.handle)

    def refuse(path: str, flags: int) -> int:
        raise OSError(EMFILE, "too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(shared.disk, "open", refuse)
        with pytest.raises(OSError, match="too many"):
            log.read(Offset(0), below=Offset(2 * BATCHES), max_bytes=max_bytes, at_least_one=True)
    assert file.handle.leases == 0
