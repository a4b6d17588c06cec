"""A real process on a real disk is killed at random: nothing acknowledged is lost."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.crash.append_process import open_engine, value_at
from tests.profile import scaled

from penstock.model.ids import Offset
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import iter_records
from penstock.storage.engine import PartitionLog
from penstock.storage.verify import verify_directory

ROOT = Path(__file__).parents[2]
Figure = Callable[[str, int], None]


def test_acknowledged_records_survive_kills_at_any_moment(
    tmp_path: Path, record_figure: Figure
) -> None:
    directory = str(tmp_path / "data")
    acknowledged: dict[int, int] = {}
    chance = random.Random(20)
    kills = scaled(test=8, verify=40, release=400)
    for _ in range(kills):
        before = sum(acknowledged.values())
        _append_and_kill(directory, acknowledged, lines=chance.randint(1, 150))
        assert sum(acknowledged.values()) > before, "nothing was acknowledged before the kill"
        _check(directory, acknowledged, stop_cleanly=chance.random() < 0.3)
    record_figure("crash: live kills", kills)
    record_figure(
        "crash: offsets acknowledged to a process before its kill", sum(acknowledged.values())
    )


def _append_and_kill(directory: str, acknowledged: dict[int, int], *, lines: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.append_process", directory],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    with child.stdout as output:
        for _ in range(lines):
            _note(output.readline(), acknowledged)
        child.send_signal(signal.SIGKILL)
        for line in output:
            _note(line, acknowledged)
    assert child.wait() == -signal.SIGKILL


def _note(line: bytes, acknowledged: dict[int, int]) -> None:
    if line.endswith(b"\n"):
        partition, offset = map(int, line.split())
        acknowledged[partition] = max(acknowledged.get(partition, 0), offset)


def _check(directory: str, acknowledged: dict[int, int], *, stop_cleanly: bool) -> None:
    engine, logs = open_engine(directory)
    assert not engine.statistics().failed_directories
    for partition, log in logs.items():
        assert log.log_end_offset >= acknowledged.get(partition.partition, 0)
        _check_records(log)
    assert {partition.partition for partition in logs} >= acknowledged.keys()
    if stop_cleanly:
        engine.close()
    else:
        engine.abandon()
    assert verify_directory(directory, records=True).problems == []


def _check_records(log: PartitionLog) -> None:
    """Checks that every offset is there once, in order, with its value."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, below=log.log_end_offset, max_bytes=1 << 20, at_least_one=True)
        content = b"".join(os.pread(s.fd, s.length, s.position) for s in read.slices)
        read.lease.release()
        for position, header in iter_headers(content):
            for record in iter_records(content[position : position + header.size]):
                assert record.offset == offset
                assert record.value == value_at(log.tp, offset)
                offset = Offset(offset + 1)
