"""Recovery takes ordinary batches in one loop and all others one by one: both must do the same.

Files are drawn batch by batch, damaged ones among them, and recovered twice: normally, and with
every batch on the slow path.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.storage.compacted_logs import FOLDER, make_log

from penstock.config.log_config import LogConfig
from penstock.io.disk import CREATE, write_fully
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    compute_crc,
)
from penstock.protocol.control import build_end_marker_batch
from penstock.storage.leader_epoch_cache import EPOCH_FILE, EpochEntry, encode_epochs
from penstock.storage.recovery import CheckpointedOffsets, open_log
from penstock.storage.scan import CHUNK_BYTES
from penstock.storage.segment import Segment
from penstock.storage.segment_file import LOG_SUFFIX, file_name
from penstock.testing.simulated_disk import SimulatedDisk

NOW_MS = 1_000_000
_LENGTH = Struct(">i")
_OUTSIDE_CRC = Struct(">qiib")  # base offset, length, leader epoch, magic


class Drawn(NamedTuple):
    """One batch, described by its differences from an ordinary one."""

    producer_id: int = -1
    is_marker: bool = False
    payload_bytes: int = 40
    delta: int = 0
    jump: int = 0
    epoch_step: int = 0
    time_step_ms: int = 1
    magic: int = 2
    length_error: int = 0
    missing_bytes: int = 0  # cut off at its end; the CRC does not cover them
    flipped_bit: int | None = None
    begins_segment: bool = False


def batches(**fields: Any) -> Drawn:
    """For `st.builds` in place of the class: omitted fields keep their ordinary value."""
    return Drawn(**fields)


usual = st.builds(
    batches,
    payload_bytes=st.sampled_from([0, 40, 40, 500]),
    delta=st.sampled_from([0, 0, 3]),
    time_step_ms=st.sampled_from([1, 1, 0, 7, -5]),
    begins_segment=st.sampled_from([False] * 9 + [True]),
)
odd = st.one_of(
    st.builds(batches, producer_id=st.sampled_from([1, 2]), is_marker=st.booleans()),
    st.builds(batches, payload_bytes=st.sampled_from([CHUNK_BYTES // 3, CHUNK_BYTES + 5])),
    st.builds(batches, jump=st.sampled_from([1, 9])),
    st.builds(batches, jump=st.just(2**31), begins_segment=st.just(True)),
    st.builds(batches, epoch_step=st.sampled_from([1, 2])),
    st.builds(batches, time_step_ms=st.sampled_from([-NOW_MS - 1, 2**50])),
)
wrong = st.one_of(
    st.builds(batches, jump=st.sampled_from([-1, -30, 2**31, 2**40])),
    st.builds(batches, jump=st.just(9), begins_segment=st.just(True)),
    st.builds(batches, epoch_step=st.just(-1)),
    st.builds(batches, delta=st.sampled_from([-1, -(2**31)])),
    st.builds(batches, delta=st.just(2**31 - 1)),
    st.builds(batches, magic=st.sampled_from([0, 1, 3])),
    st.builds(batches, payload_bytes=st.just(0), missing_bytes=st.sampled_from([1, 20, 40])),
    st.builds(batches, length_error=st.sampled_from([-200, -1, 1, 2**30])),
    st.builds(batches, flipped_bit=st.integers(0, 8 * (HEADER_BYTES + 40) - 1)),
)
sound = st.lists(st.one_of(usual, usual, usual, usual, odd), max_size=25)
histories = st.tuples(sound, st.lists(wrong, max_size=1), sound).map(
    lambda parts: [*parts[0], *parts[1], *parts[2], Drawn()]
)


@dataclass
class Files:
    """The generated segments of one log, and the next batch's offset and epoch."""

    offset: int = 0
    epoch: int = 0
    time_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.contents: dict[int, bytearray] = {}
        self.epochs = [EpochEntry(LeaderEpoch(0), Offset(0))]

    def add(self, drawn: Drawn) -> None:
        base_offset = max(self.offset + drawn.jump, 0)
        if drawn.begins_segment or not self.contents:
            base_offset = max(base_offset, self.offset)
            self.contents.setdefault(base_offset, bytearray())
        if drawn.epoch_step:
            self.epoch = max(0, self.epoch + drawn.epoch_step)
            if self.epoch > self.epochs[-1].epoch:
                self.epochs.append(EpochEntry(LeaderEpoch(self.epoch), Offset(base_offset)))
        self.time_ms += drawn.time_step_ms
        batch = self._marker(drawn) if drawn.is_marker else self._data(drawn)
        (length,) = _LENGTH.unpack_from(batch, LENGTH_POSITION)
        _OUTSIDE_CRC.pack_into(
            batch, 0, base_offset, length + drawn.length_error, self.epoch, drawn.magic
        )
        if drawn.flipped_bit is not None:
            batch[drawn.flipped_bit // 8] ^= 1 << drawn.flipped_bit % 8
        self.contents[max(self.contents)] += batch
        self.offset = base_offset + max(0, drawn.delta) + 1

    def _data(self, drawn: Drawn) -> bytearray:
        is_of_producer = drawn.producer_id >= 0
        header = HEADER.pack(
            0,
            HEADER_BYTES - LOG_OVERHEAD + drawn.payload_bytes - drawn.missing_bytes,
            0,
            0,
            0,
            TRANSACTIONAL if is_of_producer else 0,
            drawn.delta,
            max(-1, self.time_ms),
            max(-1, self.time_ms),
            drawn.producer_id,
            0 if is_of_producer else -1,
            self.offset % 2**31 if is_of_producer else -1,
            max(1, drawn.delta),
        )
        batch = bytearray(header) + bytes(drawn.payload_bytes)
        del batch[len(batch) - drawn.missing_bytes :]
        batch[CRC_POSITION : CRC_POSITION + 4] = compute_crc(batch).to_bytes(4, "big")
        return batch

    def _marker(self, drawn: Drawn) -> bytearray:
        return build_end_marker_batch(
            commit=drawn.producer_id == 1,
            coordinator_epoch=0,
            producer_id=drawn.producer_id,
            producer_epoch=0,
            timestamp_ms=self.time_ms,
        )

    def write(self, *, cut_bytes: int, known_epochs: int) -> SimulatedDisk:
        disk = SimulatedDisk(FOLDER)
        last = max(self.contents)
        del self.contents[last][len(self.contents[last]) - cut_bytes :]
        for base_offset, content in self.contents.items():
            _write(disk, file_name(base_offset, LOG_SUFFIX), bytes(content))
        if known_epochs:
            _write(disk, EPOCH_FILE, encode_epochs(self.epochs[:known_epochs]))
        return disk


def _write(disk: SimulatedDisk, name: str, content: bytes) -> None:
    descriptor = disk.open(f"{FOLDER}/{name}", CREATE)
    write_fully(disk, descriptor, content)
    disk.close(descriptor)


# A batch with an offset before its segment, in a segment that is trusted and has no index.
FROM_ELSEWHERE = [
    Drawn(payload_bytes=0),
    Drawn(jump=2**31, begins_segment=True),
    Drawn(jump=-30),
    Drawn(jump=2**31, begins_segment=True),
    Drawn(),
]


@example(FROM_ELSEWHERE, 0, 1, 2**40, 0, 0)
@example(FROM_ELSEWHERE, 0, 1, 2**40, 101, 0)
@settings(
    max_examples=scaled(test=80, verify=1000, release=10_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    drawn=histories,
    cut_bytes=st.sampled_from([0, 0, 0, 1, 45, 90]),
    known_epochs=st.integers(0, 3),
    point=st.sampled_from([0, 0, 3, 2**40]),
    interval_bytes=st.sampled_from([0, 101, 400, 4096]),
    index_bytes=st.sampled_from([0, 16, 40, 10_000]),
)
def test_recovery_is_the_same_with_and_without_the_fast_path(
    drawn: list[Drawn],
    cut_bytes: int,
    known_epochs: int,
    point: int,
    interval_bytes: int,
    index_bytes: int,
) -> None:
    files = Files()
    for batch in drawn:
        files.add(batch)
    disk = files.write(cut_bytes=cut_bytes, known_epochs=known_epochs)
    config = LogConfig(index_interval_bytes=interval_bytes, segment_index_bytes=index_bytes)
    recovered = recover(disk.copy(), config, point)
    with _the_long_way_only():
        expected = recover(disk.copy(), config, point)
    assert recovered == expected
    event(f"{len(recovered['reports'])} reports")


def recover(disk: SimulatedDisk, config: LogConfig, point: int) -> dict[str, Any]:
    """The recovered log and its files, in comparable form."""
    reports: list[str] = []
    log = make_log(disk, config)
    remembered = CheckpointedOffsets(
        clean=False,
        recovery_point=Offset(point),
        log_start_offset=Offset(0),
        high_watermark=Offset(0),
        cleaned_offset=Offset(0),
    )
    names = {entry.name for entry in disk.list(FOLDER)}
    open_log(log, disk, names, remembered, NOW_MS, message_logger(reports.append))
    return {
        "reports": reports,
        "end": (log.log_start_offset, log.log_end_offset, log.last_stable_offset),
        "epochs": log.epochs.entries,
        "latest_epoch": log.latest_epoch,
        "producers": sorted(log.producers.producers()),
        "segments": [_look_into(segment) for segment in log.segments],
        "files": disk.files(),
    }


def _look_into(segment: Segment) -> dict[str, Any]:
    indexes = (segment.offset_index, segment.time_index)
    return {
        "place": (segment.base_offset, segment.size, segment.is_active),
        "time": (
            segment.first_timestamp_ms,
            segment.max_timestamp,
            segment.max_timestamp_offset,
        ),
        "indexes": [[index.entry(number) for number in range(len(index))] for index in indexes],
        "next_entry": (segment.bytes_since_index, segment.is_index_full),
        "aborted": segment.transaction_index.entries,
    }


@contextmanager
def _the_long_way_only() -> Iterator[None]:
    """Disables the fast path, to compare the results."""

    def take_none(
        segment: Segment, buffer: memoryview, index: int, *_: int, offset: int, epoch: int
    ) -> tuple[int, int]:
        return index, offset

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "note_plain_run", take_none)
        yield


def test_ordinary_batches_take_the_fast_path() -> None:
    """Otherwise the comparison above would compare the slow path with itself."""
    files = Files()
    for drawn in (Drawn(), Drawn(delta=3), Drawn(payload_bytes=900), Drawn(time_step_ms=-5)):
        files.add(drawn)
    usual_bytes = len(files.contents[0])
    files.add(Drawn(producer_id=1))
    disk = files.write(cut_bytes=0, known_epochs=0)
    segment = make_log(disk, LogConfig()).segment_at(0, NOW_MS)
    segment.start_indexes()
    content = memoryview(files.contents[0])
    assert segment.note_plain_run(content, 0, len(content), 0, offset=0, epoch=0) == (
        usual_bytes,
        7,
    )
    assert segment.size == usual_bytes
