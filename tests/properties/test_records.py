"""Batches of any content are read back; damaged ones raise a typed error in bounded memory."""

import random
import resource
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.protocol.batch import (
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    Buffer,
    CorruptBatch,
    check_client_batch,
    check_header,
    is_crc_valid,
    iter_headers,
    read_header,
    stamp_append_time,
)
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_keys, iter_records

MIB = 1024 * 1024
FUZZ_INPUTS = scaled(test=12_000, verify=500_000, release=10_000_000)
EXAMPLES = scaled(test=100, verify=3_000, release=30_000)

OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
TIMESTAMPS = st.just(-1) | st.integers(0, 2**63 - 1) | st.integers(1_700_000_000_000, 2**41)
HEADERS = st.lists(st.tuples(st.text(max_size=10), OPTIONAL_BYTES), max_size=4).map(tuple)
GAPS = st.just(1) | st.integers(1, 20_000)


@st.composite
def record_lists(draw: st.DrawFn, min_size: int = 1) -> list[Record]:
    records = []
    offset = draw(st.integers(0, 2**62))
    for _ in range(draw(st.integers(min_size, 8))):
        records.append(
            Record(
                offset,
                draw(TIMESTAMPS),
                draw(OPTIONAL_BYTES),
                draw(OPTIONAL_BYTES),
                draw(HEADERS),
            )
        )
        offset += draw(GAPS)
    return records


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    records=record_lists(),
    codec=st.sampled_from(Codec),
    before=st.integers(0, 1_000),
    after=st.integers(0, 1_000),
    horizon=st.none() | st.integers(0, 2**63 - 1),
)
def test_records_come_back_through_every_codec(
    records: list[Record], codec: Codec, before: int, after: int, horizon: int | None
) -> None:
    base_offset = max(0, records[0].offset - before)
    last_delta = records[-1].offset - base_offset + after
    batch = build_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        last_offset_delta=last_delta,
        delete_horizon_ms=horizon,
    )
    header = read_header(batch)
    check_header(header, len(batch))
    assert is_crc_valid(batch, 0, len(batch))
    assert header.next_offset == base_offset + last_delta + 1
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert list(iter_records(memoryview(batch))) == records
    assert list(iter_keys(bytes(batch))) == [
        (record.offset, record.key, record.value is not None, record.timestamp_ms)
        for record in records
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(records=record_lists(), codec=st.sampled_from(Codec), now_ms=st.integers(0, 2**63 - 1))
def test_append_time_changes_only_timestamps(
    records: list[Record], codec: Codec, now_ms: int
) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    stamp_append_time(batch, 0, len(batch), now_ms)
    assert is_crc_valid(batch, 0, len(batch))
    stamped = [record._replace(timestamp_ms=now_ms) for record in records]
    assert list(iter_records(batch)) == stamped


SAMPLE_RECORDS = [
    Record(0, 1_000, b"key", b"value" * 30, (("name", b"x"), ("none", None))),
    Record(1, -1, None, b""),
    Record(2, 999, b"", None),
    Record(300, 10**12, b"k" * 70, b"v" * 9_000),
]


def refused(read: Callable[[], object]) -> bool:
    """Whether CorruptBatch was raised; any other error fails the test."""
    try:
        read()
    except CorruptBatch:
        return True
    return False


def has_no_records(batch: Buffer) -> bool:
    return refused(lambda: list(iter_records(batch)))


def has_no_keys(batch: Buffer) -> bool:
    return refused(lambda: list(iter_keys(batch)))


@pytest.mark.parametrize("codec", Codec)
def test_every_cut_of_a_batch_is_corrupt(codec: Codec) -> None:
    batch = bytes(build_batch(SAMPLE_RECORDS, codec=codec))
    for cut in range(len(batch)):
        part = batch[:cut]
        assert has_no_records(part), cut
        assert has_no_keys(part), cut


@pytest.mark.parametrize("codec", Codec)
def test_every_cut_with_a_length_to_match_is_corrupt(codec: Codec) -> None:
    batch = build_batch(SAMPLE_RECORDS, codec=codec)
    for cut in range(HEADER_BYTES, len(batch)):
        part = batch[:cut]
        struct.pack_into(">i", part, LENGTH_POSITION, cut - LOG_OVERHEAD)
        assert has_no_records(part), cut


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_bit_under_the_crc_is_detected(codec: Codec) -> None:
    batch = build_batch(SAMPLE_RECORDS[:3], codec=codec)
    for position in range(CRC_POSITION, len(batch)):
        for bit in range(8):
            batch[position] ^= 1 << bit
            assert not is_crc_valid(batch, 0, len(batch)), (position, bit)
            batch[position] ^= 1 << bit
    assert is_crc_valid(batch, 0, len(batch))


def seeds() -> list[bytes]:
    marker = build_end_marker_batch(
        commit=True, coordinator_epoch=1, producer_id=1, producer_epoch=1, timestamp_ms=1
    )
    batches = [build_batch(SAMPLE_RECORDS[:3], codec=codec) for codec in Codec]
    plain = batches[Codec.NONE]
    emptied = build_batch([], last_offset_delta=3)
    return [bytes(batch) for batch in (*batches, plain, plain, plain, marker, emptied)]


def mutate(rng: random.Random, seed: bytes) -> bytearray:
    """Random bytes, or a batch with a few bytes changed, removed or inserted, mostly with a
    matching length."""
    if rng.random() < 0.05:
        return bytearray(rng.randbytes(rng.randrange(150)))
    batch = bytearray(seed)
    for _ in range(rng.randrange(1, 5)):
        position = rng.randrange(len(batch))
        match rng.randrange(4):
            case 0:
                batch[position] ^= 1 << rng.randrange(8)
            case 1:
                batch[position] = rng.choice((0x00, 0x01, 0x7F, 0x80, 0xFF))
            case 2:
                batch[position : position + rng.randrange(1, 10)] = rng.randbytes(rng.randrange(10))
            case _ if len(batch) > HEADER_BYTES:
                position = rng.randrange(HEADER_BYTES, len(batch))
                batch[position : position + 5] = b"\xff\xff\xff\xff\x0f"
            case _:
                pass
    if rng.random() < 0.8 and len(batch) >= HEADER_BYTES:
        struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - LOG_OVERHEAD)
    return batch


def exercise(batch: bytearray) -> bool:
    """Runs every reader; returns True if the records decoded, and then they must survive a
    rewrite."""
    is_crc_valid(batch, 0, len(batch))
    refused(lambda: list(iter_headers(batch)))
    refused(lambda: check_client_batch(read_header(batch)))
    refused(lambda: read_end_marker(batch))
    keys: list[tuple[int, bytes | None, bool, int]] = []
    keys_refused = refused(lambda: keys.extend(iter_keys(batch, limit=MIB)))
    records: list[Record] = []
    if refused(lambda: records.extend(iter_records(batch, limit=MIB))):
        return False
    header = read_header(batch)
    rewritten = build_batch(
        records, base_offset=header.base_offset, last_offset_delta=header.last_offset_delta
    )
    assert not keys_refused
    assert keys == [(r.offset, r.key, r.value is not None, r.timestamp_ms) for r in records]
    assert list(iter_records(rewritten)) == records
    return True


@pytest.mark.timeout(scaled(test=300, verify=1_800, release=14_400))
def test_mutated_batches_only_raise_typed_errors_and_stay_small() -> None:
    rng = random.Random(20_261_116)
    corpus = seeds()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoded = sum(exercise(mutate(rng, rng.choice(corpus))) for _ in range(FUZZ_INPUTS))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    # Both outcomes must be common, or the mutations miss what they should reach.
    assert FUZZ_INPUTS * 0.05 < decoded < FUZZ_INPUTS * 0.95
    assert grown_kib < 64 * 1024
