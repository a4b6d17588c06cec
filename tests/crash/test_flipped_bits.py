"""Every bit of a segment, flipped: the log ends before the damaged batch, or reads as written.

Flips that no check can detect are collected and shown: leader epoch and base offset are outside a
batch's CRC, because the leader sets them. A neighbouring batch, the index or the epoch checkpoint
contradicts all such flips except some in the last batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
from tests.crash.harness import (
    CONFIG,
    DATA,
    FOLDER,
    Counter,
    Seen,
    check_derived,
    header_of,
    look,
    scenario,
    write_scenario,
)
from tests.profile import scaled

from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    HEADER_BYTES,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    MAGIC_POSITION,
    iter_headers,
)
from penstock.protocol.records import Record, iter_records
from penstock.storage.segment import MAX_RELATIVE_OFFSET
from penstock.testing.simulated_disk import SimulatedDisk

SEGMENT = f"{FOLDER}/{0:020d}.log"
ONE_SEGMENT = replace(CONFIG, segment_bytes=1 << 20, index_interval_bytes=2048)
SHARES = 16  # parts of the bits, so that several workers can share them
Figure = Callable[[str, int], None]
Note = Callable[[str, list[str]], None]


class FlippedBit(NamedTuple):
    batch: int  # number of the batch in the segment
    position: int  # of the byte within the batch
    bit: int  # number of the bit within the byte

    @property
    def field(self) -> str:
        if self.position < LENGTH_POSITION:
            return "base offset"
        if LEADER_EPOCH_POSITION <= self.position < MAGIC_POSITION:
            return "leader epoch"
        return "found by its CRC" if self.position >= ATTRIBUTES_POSITION else "header"


@cache
def _crashed() -> tuple[SimulatedDisk, Seen]:
    """A synced segment of 16 KiB, after a crash with recovery point 0."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario(value_bytes=560), ONE_SEGMENT)
    (log,) = logs.values()
    engine.flush(log, log.log_end_offset, lambda error: None)
    seen = look(log, disk)
    check_derived(seen)
    assert 12 * 1024 < len(disk.files()[SEGMENT]) < 20 * 1024
    survivor = disk.survivor_of_kill()
    return survivor, seen


def _bits() -> Iterator[tuple[int, FlippedBit]]:
    """All bits of headers, and of the rest all or, in the short form, every 64th."""
    step = scaled(test=64, verify=1, release=1)
    for number, (start, header) in enumerate(iter_headers(_crashed()[0].files()[SEGMENT])):
        for bit in range(8 * header.size):
            if bit < 8 * HEADER_BYTES or bit % step == 0:
                yield 8 * start + bit, FlippedBit(number, *divmod(bit, 8))


def _values(batches: tuple[bytes, ...]) -> list[list[Record]]:
    return [
        [
            record._replace(offset=record.offset - header_of(batch).base_offset)
            for record in iter_records(batch)
        ]
        for batch in batches
    ]


def _may_pass(flip: FlippedBit, seen: Seen) -> bool:
    """Whether a flip in the last batch leaves a possible batch: one of a later epoch, or at a later
    offset that a relative offset can express and that no index entry contradicts."""
    if flip.batch != len(seen.batches) - 1:
        return False
    header = header_of(seen.batches[-1])
    if flip.field == "leader epoch":
        flipped = header.leader_epoch ^ _mask(flip, LEADER_EPOCH_POSITION, 4)
        return header.leader_epoch < flipped < 2**31
    if flip.field == "base offset":
        flipped = header.base_offset ^ _mask(flip, BASE_OFFSET_POSITION, 8)
        return header.base_offset < flipped <= MAX_RELATIVE_OFFSET - header.last_offset_delta
    return False


def _mask(flip: FlippedBit, position: int, width: int) -> int:
    return 1 << (8 * (width - 1 - (flip.position - position)) + flip.bit)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_flipped_bit_ends_the_log_before_its_batch(
    share: int, record_figure: Figure, record_note: Note
) -> None:
    counter, flips, passed = Counter(), 0, list[FlippedBit]()
    crashed, whole = _crashed()
    for flips, (bit, flip) in enumerate(list(_bits())[share::SHARES], start=1):
        disk = crashed.copy()
        disk.flip_bit(SEGMENT, bit)
        engine, log, seen = counter.recover(disk, ONE_SEGMENT)
        if len(seen.batches) > flip.batch:
            passed.append(flip)
            assert len(seen.batches) == len(whole.batches), flip
            assert _values(seen.batches) == _values(whole.batches), flip
        else:
            assert seen.batches == whole.batches[: flip.batch], flip
            check_derived(seen)
        if flips % scaled(test=32, verify=8, release=4) == 0:
            counter.check_settled(disk, engine, log, seen, ONE_SEGMENT)
    assert [flip for flip in passed if not _may_pass(flip, whole)] == []
    record_figure("crash: bits flipped", flips)
    record_figure("crash: recoveries after a flip", counter.recoveries)
    record_note(
        "crash: flips that nothing can notice, all in the last batch", _describe(passed, whole)
    )


def _describe(passed: list[FlippedBit], whole: Seen) -> list[str]:
    """Describes the flips of all shares, byte by byte, because each share has seen only some
    bits."""
    if not passed:
        return []
    start = sum(map(len, whole.batches[:-1]))
    last = [flip for _, flip in _bits() if _may_pass(flip, whole)]
    bits: dict[tuple[str, int], list[int]] = {}
    for flip in last:
        bits.setdefault((flip.field, flip.position), []).append(flip.bit)
    return [
        f"{field}, byte {byte:2} of the batch at position {start}: bits {passed_bits}"
        for (field, byte), passed_bits in bits.items()
    ]


def test_every_detectable_flip_in_the_last_batch_is_detected() -> None:
    """The flips that pass are exactly those that leave a possible batch."""
    crashed, whole = _crashed()
    for bit, flip in _bits():
        if flip.batch == len(whole.batches) - 1 and flip.position < MAGIC_POSITION:
            disk = crashed.copy()
            disk.flip_bit(SEGMENT, bit)
            _, _, seen = Counter().recover(disk, ONE_SEGMENT)
            assert (len(seen.batches) == len(whole.batches)) == _may_pass(flip, whole), flip
