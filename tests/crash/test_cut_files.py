"""Every file of a small log, truncated at every byte, removed, or extended."""

from collections.abc import Callable
from functools import cache

import pytest
from tests.crash.harness import (
    DATA,
    TOPIC_ID,
    Counter,
    Seen,
    check_derived,
    look,
    scenario,
    write_scenario,
)
from tests.profile import scaled

from penstock.io.disk import CREATE
from penstock.protocol.batch import iter_headers
from penstock.storage.checkpoints import CLEANER_FILE, RECOVERY_POINT_FILE
from penstock.storage.partition_metadata import CLEAN_SHUTDOWN_FILE
from penstock.storage.segment_file import LOG_SUFFIX
from penstock.storage.transaction_index import TRANSACTION_INDEX_SUFFIX
from penstock.testing.simulated_disk import SimulatedDisk

MARKER = f"{DATA}/{CLEAN_SHUTDOWN_FILE}"
RECOVERY_POINTS = f"{DATA}/{RECOVERY_POINT_FILE}"
TAILS = (bytes(1), bytes(12), bytes(200), b"\xff", b"garbage 0123456789\n" * 9)
Figure = Callable[[str, int], None]


@cache
def _stopped() -> tuple[SimulatedDisk, Seen]:
    """The disk after a clean shutdown, and the state of the log before it."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    (log,) = logs.values()
    seen = look(log, disk)
    check_derived(seen)
    engine.close()
    _append_file(disk, f"{DATA}/{CLEANER_FILE}", b"0\n1\norders 0 0\n")
    return disk, seen


def _append_file(disk: SimulatedDisk, path: str, content: bytes) -> None:
    descriptor = disk.open(path, CREATE)
    disk.write(descriptor, content)
    disk.sync(descriptor)
    disk.close(descriptor)
    disk.sync_directory(path.rpartition("/")[0])


def _files() -> dict[str, bytes]:
    return {path: content for path, content in _stopped()[0].files().items() if content}


LOGS = [path for path in _files() if path.endswith(LOG_SUFFIX)]
OTHERS = [path for path in _files() if not path.endswith(LOG_SUFFIX)]


def _crashed() -> SimulatedDisk:
    """The same disk without the clean shutdown marker and with recovery point 0."""
    disk = _stopped()[0].copy()
    disk.remove(MARKER)
    disk.remove(RECOVERY_POINTS)
    return disk


def _check(disk: SimulatedDisk, batches: int, counter: Counter, *, settle: bool) -> None:
    engine, log, seen = counter.recover(disk)
    whole = _stopped()[1]
    assert seen.batches == whole.batches[:batches]
    assert log.log_end_offset == (seen.log_end_offset)
    check_derived(seen)
    if settle:
        counter.check_settled(disk, engine, log, seen)


def _settles(length: int) -> bool:
    """Whether to check this truncation further; checking all would take too long."""
    return length % scaled(test=16, verify=1, release=1) == 0


def _short(path: str) -> str:
    return path.removeprefix(DATA + "/")


@pytest.mark.parametrize("path", LOGS, ids=_short)
def test_a_truncated_log_file_keeps_exactly_its_whole_batches(
    path: str, record_figure: Figure
) -> None:
    counter = Counter()
    content = _files()[path]
    before = sum(len(list(iter_headers(_files()[other]))) for other in LOGS[: LOGS.index(path)])
    for length in range(len(content)):
        disk = _crashed()
        disk.cut(path, length)
        kept = sum(
            1 for position, header in iter_headers(content) if position + header.size <= length
        )
        _check(disk, before + kept, counter, settle=_settles(length))
    record_figure("crash: recoveries after a cut", counter.recoveries)


@pytest.mark.parametrize("path", LOGS, ids=_short)
def test_a_log_file_with_a_tail_of_zeros_or_garbage_loses_only_the_tail(
    path: str, record_figure: Figure
) -> None:
    counter = Counter()
    before = sum(len(list(iter_headers(_files()[other]))) for other in LOGS[: LOGS.index(path) + 1])
    for tail in TAILS:
        disk = _crashed()
        _append_file(disk, path, tail)
        _check(disk, before, counter, settle=True)
    record_figure("crash: recoveries after a cut", counter.recoveries)


def test_a_log_ends_before_a_missing_segment(record_figure: Figure) -> None:
    counter = Counter()
    before = 0
    for index, path in enumerate(LOGS[1:], start=1):
        before += len(list(iter_headers(_files()[LOGS[index - 1]])))
        disk = _crashed()
        disk.remove(path)
        _check(disk, before, counter, settle=True)
    record_figure("crash: recoveries after a cut", counter.recoveries)


@pytest.mark.parametrize("path", OTHERS, ids=_short)
def test_truncating_any_other_file_loses_no_record(path: str, record_figure: Figure) -> None:
    """After a crash with nothing durable, a crash with everything durable, and a clean shutdown."""
    counter = Counter()
    whole = len(_stopped()[1].batches)
    for length in range(len(_files()[path])):
        for disk in _starts(path):
            disk.cut(path, length)
            if _hides_aborts(path, length, disk):
                continue
            _check(disk, whole, counter, settle=_settles(length))
    record_figure("crash: recoveries after a cut", counter.recoveries)


@pytest.mark.parametrize("path", OTHERS, ids=_short)
def test_removing_or_extending_any_other_file_loses_no_record(
    path: str, record_figure: Figure
) -> None:
    counter = Counter()
    whole = len(_stopped()[1].batches)
    for disk in _starts(path):
        disk.remove(path)
        if not _hides_aborts(path, 0, disk):
            _check(disk, whole, counter, settle=True)
    for tail in TAILS:
        for disk in _starts(path):
            _append_file(disk, path, tail)
            _check(disk, whole, counter, settle=True)
    record_figure("crash: recoveries after a cut", counter.recoveries)


def _starts(path: str) -> list[SimulatedDisk]:
    clean = _stopped()[0].copy()
    if path == MARKER:
        return [clean]
    durable = _stopped()[0].copy()
    durable.remove(MARKER)
    return [clean, durable] if path == RECOVERY_POINTS else [clean, durable, _crashed()]


def _hides_aborts(path: str, length: int, disk: SimulatedDisk) -> bool:
    """Whether the shorter transaction index looks valid: nothing contradicts it if its segment is
    known to be durable and therefore not read. A crash cannot shorten it, only damage can."""
    trusted = disk.exists(MARKER) or (
        disk.exists(RECOVERY_POINTS) and not path.startswith(LOGS[-1].removesuffix(LOG_SUFFIX))
    )
    return path.endswith(TRANSACTION_INDEX_SUFFIX) and length % 34 == 0 and trusted


def test_an_unreadable_topic_id_becomes_unknown() -> None:
    path = f"{DATA}/orders-0/partition.metadata"
    for length in range(len(_files()[path])):
        disk = _stopped()[0].copy()
        disk.cut(path, length)
        _, log, _ = Counter().recover(disk)
        assert log.topic_id != TOPIC_ID
        assert log.topic_id.int == 0
