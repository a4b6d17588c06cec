"""The scan of a segment file: what it yields and where it stops, for any chunk size."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.io.disk import CREATE, write_fully
from penstock.protocol.batch import HEADER_BYTES, BatchHeader
from penstock.protocol.records import Record, build_batch
from penstock.storage.scan import Scan
from penstock.testing.simulated_disk import SimulatedDisk

NOW_MS = 1_800_000_000_000
Outcome = tuple[list[tuple[int, BatchHeader, bytes]], int, str | None]


def batch(value_bytes: int) -> bytes:
    return bytes(build_batch([Record(0, NOW_MS, None, bytes(value_bytes), ())]))


def scan(
    content: bytes,
    *,
    end: int | None = None,
    start: int = 0,
    chunk_bytes: int = 1 << 20,
    check_crc: bool = True,
) -> Outcome:
    disk = SimulatedDisk("/d")
    descriptor = disk.open("/d/log", CREATE)
    write_fully(disk, descriptor, content)
    walked = Scan(
        disk,
        descriptor,
        start=start,
        end=len(content) if end is None else end,
        check_crc=check_crc,
        chunk_bytes=chunk_bytes,
    )
    batches = [(position, header, bytes(view)) for position, header, view in walked]
    return batches, walked.position, walked.problem


# A few bytes, about a chunk, and several chunks.
VALUES = st.lists(st.sampled_from([0, 1, 30, 99, 400, 1500]), max_size=8)
CHUNKS = st.integers(HEADER_BYTES, 700)


@settings(max_examples=scaled(test=200, verify=2000, release=10000), deadline=None)
@given(VALUES, CHUNKS)
def test_scan_yields_every_batch_in_order_for_any_chunk_size(
    values: list[int], chunk_bytes: int
) -> None:
    batches = [batch(value) for value in values]
    scanned, position, problem = scan(b"".join(batches), chunk_bytes=chunk_bytes)
    assert [view for _, _, view in scanned] == batches
    assert [at for at, _, _ in scanned] == [sum(map(len, batches[:i])) for i in range(len(batches))]
    assert (position, problem) == (sum(map(len, batches)), None)


@settings(max_examples=scaled(test=300, verify=3000, release=20000), deadline=None)
@given(VALUES.filter(bool), CHUNKS, st.data(), st.booleans())
def test_damage_ends_the_scan_at_the_same_position_for_any_chunk_size(
    values: list[int], chunk_bytes: int, data: st.DataObject, check_crc: bool
) -> None:
    content = bytearray(b"".join(batch(value) for value in values))
    for _ in range(data.draw(st.integers(0, 2), label="flips")):
        position = data.draw(st.integers(0, len(content) - 1), label="place")
        content[position] ^= data.draw(st.integers(1, 255), label="bits")
    torn = bytes(content[: data.draw(st.integers(0, len(content)), label="length")])
    in_pieces = scan(torn, chunk_bytes=chunk_bytes, check_crc=check_crc)
    assert in_pieces == scan(torn, check_crc=check_crc)


@settings(max_examples=scaled(test=100, verify=1000, release=5000), deadline=None)
@given(VALUES, CHUNKS, st.integers(1, 2000), st.data())
def test_scan_of_a_file_shorter_than_expected_ends_after_its_last_whole_batch(
    values: list[int], chunk_bytes: int, missing: int, data: st.DataObject
) -> None:
    batches = [batch(value) for value in values]
    whole = b"".join(batches)
    content = whole[: data.draw(st.integers(0, len(whole)), label="length")]
    scanned, position, problem = scan(content, end=len(content) + missing, chunk_bytes=chunk_bytes)
    ends = [sum(map(len, batches[: i + 1])) for i in range(len(batches))]
    kept = [end for end in ends if end <= len(content)]
    assert len(scanned) == len(kept)
    assert position == max(kept, default=0)
    assert (problem is None) == (position == len(content))


def test_a_scan_can_start_at_any_batch() -> None:
    first, second = batch(10), batch(20)
    scanned, position, problem = scan(first + second, start=len(first))
    assert [(at, view) for at, _, view in scanned] == [(len(first), second)]
    assert (position, problem) == (len(first) + len(second), None)


def test_an_announced_length_past_the_end_of_the_file_is_not_allocated() -> None:
    huge = bytearray(batch(10))
    huge[8:12] = (2**31 - 1).to_bytes(4, "big")
    scanned, position, problem = scan(bytes(huge))
    assert (scanned, position) == ([], 0)
    assert problem == f"{2**31 - 1 + 12} bytes announced, {len(huge)} are there"


def test_a_flipped_bit_in_a_record_is_detected_only_if_crcs_are_checked() -> None:
    damaged = bytearray(batch(10))
    damaged[-3] ^= 1
    assert scan(bytes(damaged), check_crc=True)[1] == 0
    assert scan(bytes(damaged), check_crc=False)[1] == len(damaged)


def test_an_abandoned_scan_has_its_position() -> None:
    disk = SimulatedDisk("/d")
    descriptor = disk.open("/d/log", CREATE)
    first, second = batch(10), batch(20)
    write_fully(disk, descriptor, first + second)
    walked = Scan(disk, descriptor, end=len(first + second), check_crc=True)
    steps = walked.walk()
    next(steps)
    next(steps)
    steps.close()  # type: ignore[attr-defined]  # a generator
    assert walked.position == len(first)  # the current batch is not counted
