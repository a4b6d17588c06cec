"""Codecs: formats that other clients write and read, bombs, and false sizes."""

import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.protocol.batch import CorruptBatch
from penstock.protocol.compression import (
    Codec,
    DecompressedTooLarge,
    compress,
    decompress,
    new_scratch,
)

MIB = 1024 * 1024
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
XERIAL_HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")


def noise(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def peak_of_refusing(expected: type[CorruptBatch], codec: Codec, data: bytes, *, limit: int) -> int:
    """Return the peak memory until `expected` was raised."""
    tracemalloc.start()
    try:
        with pytest.raises(expected):
            decompress(codec, data, limit=limit)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("length", [0, 1, 100, 32 * 1024, 65_537, 3 * MIB])
def test_content_of_exactly_the_limit_is_returned(codec: Codec, length: int) -> None:
    for content in (noise(length), bytes(length)):
        compressed = compress(codec, content)
        assert decompress(codec, memoryview(compressed), limit=length) == content


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("length", [1, 100, 65_536, 3 * MIB])
def test_one_byte_over_the_limit_is_too_large(codec: Codec, length: int) -> None:
    for content in (noise(length), bytes(length)):
        with pytest.raises(DecompressedTooLarge, match=f"more than the {length - 1} allowed"):
            decompress(codec, compress(codec, content), limit=length - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_before_it_takes_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    assert peak_of_refusing(DecompressedTooLarge, codec, bomb, limit=MIB) < 3 * MIB


@pytest.mark.parametrize("codec", COMPRESSED)
def test_parts_of_a_bomb_count_together(codec: Codec) -> None:
    part = compress(codec, bytes(MIB // 2))
    assert decompress(codec, part * 2, limit=MIB) == bytes(MIB)
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, part * 3, limit=MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_corrupt_or_shorter(codec: Codec) -> None:
    content = noise(200) * 2
    compressed = compress(codec, content)
    for cut in range(len(compressed)):
        try:
            decompressed = decompress(codec, compressed[:cut], limit=1000)
        except CorruptBatch:
            continue
        # Only snappy's block framing has no end mark: its header alone is an empty stream.
        assert (codec, cut, decompressed) == (Codec.SNAPPY, len(XERIAL_HEADER), b"")


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_kept_scratch_buffer_changes_no_content_and_no_limit(codec: Codec) -> None:
    scratch = new_scratch()
    lengths = [50_000, 100, 0, 65_536, 65_537, 3 * MIB, 1]
    contents = [noise(length) for length in lengths] + [bytes(length) for length in lengths]
    compressed = [compress(codec, content) for content in contents]
    # All are kept until the last is there: none may be a view of the buffer.
    kept = [decompress(codec, data, limit=3 * MIB, scratch=scratch) for data in compressed]
    assert kept == contents
    for data, content in zip(compressed, contents, strict=True):
        if content:
            with pytest.raises(DecompressedTooLarge):
                decompress(codec, data, limit=len(content) - 1, scratch=scratch)
    with pytest.raises(CorruptBatch):
        decompress(codec, compressed[0][:-1], limit=MIB, scratch=scratch)
    assert decompress(codec, compressed[1], limit=MIB, scratch=scratch) == contents[1]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_of_another_codec_is_corrupt(codec: Codec) -> None:
    for junk in (b"", b"\xff" * 40, b"junk", noise(1000)):
        with pytest.raises(CorruptBatch):
            decompress(codec, junk, limit=MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_trailing_bytes_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, b"content") + b"junkjunkjunkjunk", limit=MIB)


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19)])
def test_a_higher_level_gives_fewer_bytes_and_the_same_content(codec: Codec, level: int) -> None:
    words = [noise(length) for length in range(3, 60)]
    content = b"".join(random.Random(1).choices(words, k=5_000))
    small = compress(codec, content, level)
    assert len(small) < len(compress(codec, content, 1))
    assert decompress(codec, small, limit=MIB) == content


def test_gzip_is_compatible_with_the_standard_library() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), limit=6) == (
        b"onetwo"
    )
    assert gzip.decompress(compress(Codec.GZIP, b"three")) == b"three"


def test_gzip_members_are_limited_in_number() -> None:
    with pytest.raises(CorruptBatch, match="more than 1024 members"):
        decompress(Codec.GZIP, gzip.compress(b"") * 1025, limit=MIB)


# A snappy block encoded by hand: length 5, then a literal of 5 bytes.
SNAPPY_HELLO = b"\x05\x10hello"


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, SNAPPY_HELLO, limit=5) == b"hello"


def test_framed_snappy_is_read_block_by_block() -> None:
    block = struct.pack(">i", len(SNAPPY_HELLO)) + SNAPPY_HELLO
    assert decompress(Codec.SNAPPY, XERIAL_HEADER + block * 3, limit=15) == b"hello" * 3
    two_streams = (XERIAL_HEADER + block) * 2
    assert decompress(Codec.SNAPPY, two_streams, limit=10) == b"hello" * 2


def test_snappy_is_written_in_frames_of_32_kib_as_java_writes_it() -> None:
    content = noise(100_000)
    framed = compress(Codec.SNAPPY, content)
    assert framed.startswith(XERIAL_HEADER)
    blocks = []
    position = len(XERIAL_HEADER)
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        block = framed[position + 4 : position + 4 + length]
        blocks.append(bytes(cramjam.snappy.decompress_raw(block)))
        position += 4 + length
    assert [len(block) for block in blocks] == [32_768, 32_768, 32_768, 1_696]
    assert b"".join(blocks) == content


@pytest.mark.parametrize(
    "lie",
    [
        b"\xff\xff\xff\xff\x0f" + b"\x10hello",  # claims 4 GiB
        XERIAL_HEADER + b"\x00\x00\x00\x0a\xff\xff\xff\xff\x0f" + b"\x10hell",
        XERIAL_HEADER + b"\x7f\xff\xff\xff" + SNAPPY_HELLO,  # block of 2 GiB
        XERIAL_HEADER + b"\xff\xff\xff\xff" + SNAPPY_HELLO,  # block of -1
        XERIAL_HEADER + b"\x00\x00",
        XERIAL_HEADER[:12],
    ],
)
def test_false_sizes_in_snappy_are_corrupt_and_take_no_memory(lie: bytes) -> None:
    assert peak_of_refusing(CorruptBatch, Codec.SNAPPY, lie, limit=2**40) < MIB


def test_lz4_blocks_are_independent_because_java_reads_no_others() -> None:
    frame = compress(Codec.LZ4, noise(200_000))
    assert frame[:4] == struct.pack("<I", 0x184D2204)
    flags = frame[4]
    assert flags >> 6 == 1  # version
    assert flags & 0x20  # independent blocks
    assert not flags & 0x03  # reserved bit, dictionary


def test_lz4_with_linked_blocks_is_read() -> None:
    content = noise(1000) * 200
    encoder = cramjam.lz4.Compressor(block_linked=True)
    encoder.compress(content)
    assert decompress(Codec.LZ4, bytes(encoder.finish()), limit=len(content)) == content


# What Java's clients and librdkafka write: 64 KiB in a block, no checksums, no content size.
LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")


def lz4_frame(*blocks: bytes) -> bytes:
    sized = (struct.pack("<I", len(block)) + block for block in blocks)
    return LZ4_HEADER + b"".join(sized) + bytes(4)


def lz4_block(content: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(content, store_size=False))


def decoded_by_library(frame: bytes, limit: int) -> bytes | None:
    """What the library's decoder of frames makes of it; None: it is corrupt or too large."""
    output = bytearray(limit)
    try:
        return bytes(output[: cramjam.lz4.decompress_into(frame, output)])
    except cramjam.DecompressionError:
        return None


def decompressed(frame: bytes, limit: int) -> bytes | None:
    try:
        return decompress(Codec.LZ4, frame, limit=limit, scratch=new_scratch())
    except CorruptBatch:
        return None


@pytest.mark.parametrize("length", [0, 1, 16_000, 65_536])
def test_an_lz4_frame_of_one_block_is_read_as_clients_write_it(length: int) -> None:
    content = (b"some words " * 6000)[:length]
    frame = lz4_frame(lz4_block(content))
    for limit in {length, 65_536, MIB}:
        assert decompress(Codec.LZ4, memoryview(frame), limit=limit) == content
    if length:
        with pytest.raises(DecompressedTooLarge):
            decompress(Codec.LZ4, frame, limit=length - 1)


def test_content_of_an_lz4_frame_outlives_the_next_use_of_the_scratch_buffer() -> None:
    scratch = new_scratch()
    contents = [b"first words " * 9, b"other words " * 8]
    kept = [
        decompress(Codec.LZ4, lz4_frame(lz4_block(content)), limit=MIB, scratch=scratch)
        for content in contents
    ]
    assert kept == contents


def test_an_lz4_frame_of_several_blocks_and_of_a_stored_one_is_read() -> None:
    words = b"some words " * 5000
    blocks = [lz4_block(words), lz4_block(b"")]
    assert decompress(Codec.LZ4, lz4_frame(*blocks), limit=MIB) == words
    assert decompress(Codec.LZ4, lz4_frame(blocks[0]) * 2, limit=MIB) == words * 2
    stored = LZ4_HEADER + struct.pack("<I", 1 << 31 | 5) + b"plain" + bytes(4)
    assert decompress(Codec.LZ4, stored, limit=MIB) == b"plain"


@pytest.mark.parametrize(
    "frame",
    [
        lz4_frame(lz4_block(bytes(65_537))),  # more than a block may hold
        lz4_frame(lz4_block(b"content") + b"\x00"),
        lz4_frame(lz4_block(b"content")[:-1]),
        lz4_frame(lz4_block(b"content"))[:-4],  # no end mark
        lz4_frame(lz4_block(b"content")) + b"\x00",
        LZ4_HEADER[:-1] + b"\x83" + lz4_frame(lz4_block(b"content"))[7:],  # header's checksum
        lz4_frame(b"\x10a\x02\x00\x00"),  # copies from before the block
        lz4_frame(b"\x40\x00\x00\x00\x1fa"),  # valid only after a size of 64
        lz4_frame(bytes(5)),  # valid only after a size of 0
    ],
    ids=["large", "trailing", "cut", "endless", "junk", "checksum", "offset", "size", "no size"],
)
def test_a_malformed_lz4_frame_of_one_block_is_corrupt(frame: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, frame, limit=MIB)


def test_an_lz4_block_that_begins_like_a_size_is_decoded_whole() -> None:
    frame = lz4_frame(b"\x80\x01\x00\x00\x40bcde")  # eight literals
    assert decompress(Codec.LZ4, frame, limit=MIB) == b"\x01\x00\x00\x40bcde"


@settings(max_examples=scaled(test=200, verify=5_000, release=100_000))
@given(
    content=st.binary(max_size=40) | st.binary(max_size=4).map(lambda part: part * 500),
    damage=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=2)), max_size=3),
    limit=st.sampled_from([30, 65_535, 65_536, 100_000]),
)
def test_damaged_lz4_frames_are_judged_as_the_library_judges_them(
    content: bytes, damage: list[tuple[int, bytes]], limit: int
) -> None:
    block = lz4_block(content)
    for position, replacement in damage:
        start = position % (len(block) + 1)
        block = block[:start] + replacement + block[start + 1 :]
        frame = lz4_frame(block)
        assert decompressed(frame, limit) == decoded_by_library(frame, limit)
        start = position % len(frame)
        broken = frame[:start] + replacement + frame[start + 1 :]
        assert decompressed(broken, limit) == decoded_by_library(broken, limit)


def zstd_frame(window_log: int, *blocks: bytes) -> bytes:
    """Build a frame with a window and without a content size."""
    return bytes.fromhex("28b52ffd00") + bytes([(window_log - 10) << 3]) + b"".join(blocks)


def zstd_repeated(byte: bytes, count: int, *, last: bool) -> bytes:
    return struct.pack("<I", count << 3 | 1 << 1 | last)[:3] + byte


def test_a_zstd_frame_encoded_by_hand_is_read() -> None:
    frame = zstd_frame(
        17, zstd_repeated(b"a", 3, last=False), zstd_repeated(b"b", 100_000, last=True)
    )
    assert decompress(Codec.ZSTD, frame, limit=MIB) == b"aaa" + b"b" * 100_000


def test_zstd_windows_above_128_mib_are_refused() -> None:
    block = zstd_repeated(b"a", 3, last=True)
    assert decompress(Codec.ZSTD, zstd_frame(27, block), limit=MIB) == b"aaa"
    with pytest.raises(CorruptBatch, match="too much memory"):
        decompress(Codec.ZSTD, zstd_frame(28, block), limit=MIB)


def test_a_false_content_size_in_zstd_takes_no_memory() -> None:
    claimed = struct.pack("<Q", 2**40)
    # Frame descriptor 0xC0: eight bytes of content size after the window byte.
    lie = bytes.fromhex("28b52ffdc038") + claimed + zstd_repeated(b"a", 3, last=True)
    assert peak_of_refusing(CorruptBatch, Codec.ZSTD, lie, limit=2**41) < MIB
