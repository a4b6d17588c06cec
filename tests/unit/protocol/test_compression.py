"""Codecs: formats that other clients write and read, bombs, and false sizes."""

import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest

from penstock.protocol.batch import CorruptBatch
from penstock.protocol.compression import Codec, DecompressedTooLarge, compress, decompress

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
