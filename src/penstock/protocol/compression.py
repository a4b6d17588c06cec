"""The five codecs of record batches, with a bound on the output.

Not a stream interface: batches are complete. Invariant of `decompress`: no more than about twice
`limit` bytes are ever allocated, whatever sizes the input claims.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import cramjam

from penstock.protocol.batch import Buffer, CorruptBatch


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressedTooLarge(CorruptBatch):
    """The content exceeds the caller's limit; it may be valid, or a decompression bomb."""

    def __init__(self, codec: Codec, compressed_bytes: int, limit: int) -> None:
        super().__init__(
            f"{compressed_bytes} bytes of {codec.name.lower()} hold more than the {limit} allowed; "
            "send smaller batches"
        )


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress in the framing that both Kafka's Java clients and librdkafka read; `level` None is
    the codec's default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(memoryview(cramjam.zstd.compress(data, level)))


def new_scratch() -> bytearray:
    """A buffer for `decompress`, which an owner keeps from batch to batch."""
    return bytearray(_SCRATCH_BYTES)


def decompress(
    codec: Codec, data: Buffer, *, limit: int, scratch: bytearray | None = None
) -> bytes:
    """The whole content; CorruptBatch, or DecompressedTooLarge if it exceeds `limit` bytes.

    `scratch` comes from `new_scratch` and saves small batches an allocation; no two threads may use
    the same one at once.
    """
    view = memoryview(data)
    if codec and not len(view):
        raise CorruptBatch(f"no bytes where {codec.name.lower()} data should be")
    return _DECODERS[codec](view, limit, scratch)


# none


def _copy(data: memoryview, limit: int, _scratch: bytearray | None) -> bytes:
    if len(data) > limit:
        raise DecompressedTooLarge(Codec.NONE, len(data), limit)
    return bytes(data)


# gzip

_GZIP_WINDOW_BITS = 31  # 15, plus 16 for the gzip wrapper
_GZIP_CHUNK_BYTES = 64 * 1024
# Producers write one member. zlib copies the rest after each member, so their number costs time.
_MAX_GZIP_MEMBERS = 1024


def _decompress_gzip(data: memoryview, limit: int, _scratch: bytearray | None) -> bytes:
    parts: list[bytes] = []
    position = members = 0
    while position < len(data):
        members += 1
        if members > _MAX_GZIP_MEMBERS:
            raise CorruptBatch(f"gzip data has more than {_MAX_GZIP_MEMBERS} members")
        position = _read_gzip_member(data, position, limit, parts)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_gzip_member(data: memoryview, position: int, limit: int, parts: list[bytes]) -> int:
    """Append the member's content to `parts`; returns the position after the member."""
    space_left = limit - sum(map(len, parts))
    inflater = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    while not inflater.eof:
        chunk = data[position : position + _GZIP_CHUNK_BYTES]
        if not chunk:
            raise CorruptBatch("gzip data is cut off")
        position += len(chunk)
        try:
            part = inflater.decompress(chunk, space_left + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip data is damaged: {error}") from None
        space_left -= len(part)
        if space_left < 0:
            raise DecompressedTooLarge(Codec.GZIP, len(data), limit)
        if part:
            parts.append(part)
    return position - len(inflater.unused_data)


# snappy

# Java frames snappy as the xerial library does; librdkafka writes one raw block and reads both.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, oldest reader
_XERIAL_BLOCK_BYTES = 32 * 1024
# Three bytes copy at most 64, so a block that claims more than this is invalid.
_SNAPPY_MAX_EXPANSION = 22


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    framed = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        framed += len(block).to_bytes(4, "big")
        framed += block
    return bytes(framed)


def _decompress_snappy(data: memoryview, limit: int, _scratch: bytearray | None) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return bytes(_decompress_snappy_block(data, len(data), limit, limit))
    content = bytearray()
    position = 0
    while position < len(data):
        # Concatenated streams repeat the header where a block's length would stand.
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position = _after(data, position, len(_XERIAL_HEADER))
            continue
        start = _after(data, position, 4)
        position = _after(data, start, int.from_bytes(data[start - 4 : start], "big"))
        space_left = limit - len(content)
        content += _decompress_snappy_block(data[start:position], len(data), space_left, limit)
    return bytes(content)


def _after(data: memoryview, position: int, length: int) -> int:
    if length > len(data) - position:
        raise CorruptBatch(
            f"snappy data is cut off: {length} bytes wanted at position {position} of {len(data)}"
        )
    return position + length


def _decompress_snappy_block(
    block: memoryview, total: int, space_left: int, limit: int
) -> bytearray:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_MAX_EXPANSION * len(block):
            raise CorruptBatch(f"snappy block of {len(block)} bytes claims to hold {claimed}")
        if claimed > space_left:
            raise DecompressedTooLarge(Codec.SNAPPY, total, limit)
        content = bytearray(claimed)
        cramjam.snappy.decompress_raw_into(block, content)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy data is damaged: {error}") from None
    return content


# lz4 and zstd


class _FrameCodec(Protocol):
    def decompress_into(self, data: Buffer, output: bytearray, /) -> int: ...


_SCRATCH_BYTES = 64 * 1024
_FIRST_GUESS_RATIO = 8
_GROWTH = 4  # decoding again costs a third more at worst
# The library's message for a full `output`; a test checks that it still holds.
_OUTPUT_FULL = "failed to write whole buffer"


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Java reads independent blocks only; level 0 is the fast mode, like Java's default.
    encoder = cramjam.lz4.Compressor(
        level=0 if level is None else level, content_checksum=False, block_linked=False
    )
    encoder.compress(bytes(data))  # the library accepts nothing else here
    return bytes(memoryview(encoder.finish()))


# Java's clients and librdkafka begin a frame with this: independent blocks of 64 KiB, no checksums,
# no content size. The last byte is the checksum of the two before it.
_LZ4_USUAL_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_END_MARK = bytes(4)
_LZ4_BLOCK_START = len(_LZ4_USUAL_HEADER) + 4  # the block's size precedes it
_LZ4_FRAMING_BYTES = _LZ4_BLOCK_START + len(_LZ4_END_MARK)


def _decompress_lz4(data: memoryview, limit: int, scratch: bytearray | None) -> bytes:
    """A frame of one block, as most batches are, is decoded without a decoder of frames: making one
    costs as much as decoding 8 KB. What is unusual or fails is left to that decoder to judge.

    The library decodes a malformed block again as if its size came first. A block that begins with
    a size that `output` can hold is therefore not decoded as a block.
    """
    size = len(data) - _LZ4_FRAMING_BYTES
    if (
        0 < size <= _LZ4_BLOCK_BYTES <= limit
        and data[:_LZ4_BLOCK_START] == _LZ4_USUAL_HEADER + size.to_bytes(4, "little")
        and data[-4:] == _LZ4_END_MARK
        and int.from_bytes(data[_LZ4_BLOCK_START : _LZ4_BLOCK_START + 4], "little") > _SCRATCH_BYTES
    ):
        output = new_scratch() if scratch is None else scratch
        block = data[_LZ4_BLOCK_START:-4]
        try:
            length = cramjam.lz4.decompress_block_into(block, output, _LZ4_BLOCK_BYTES)
        except cramjam.DecompressionError:
            pass
        else:
            return bytes(memoryview(output)[:length])
    return _decompress_frames(Codec.LZ4, cramjam.lz4, data, limit, scratch)


def _decompress_zstd(data: memoryview, limit: int, scratch: bytearray | None) -> bytes:
    return _decompress_frames(Codec.ZSTD, cramjam.zstd, data, limit, scratch)


def _decompress_frames(
    codec: Codec, library: _FrameCodec, data: memoryview, limit: int, scratch: bytearray | None
) -> bytes:
    """Decompress concatenated frames into a buffer that grows with the data, never by a claimed
    size.

    The library refuses zstd windows above 128 MiB; smaller ones are reserved, not touched.
    """
    capacity = min(limit, max(_SCRATCH_BYTES, _FIRST_GUESS_RATIO * len(data)))
    while True:
        if scratch is not None and capacity == len(scratch):
            output = scratch
        else:
            output = bytearray(capacity)
        try:
            length = library.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatch(f"{codec.name.lower()} data is damaged: {error}") from None
            if capacity == limit:
                raise DecompressedTooLarge(codec, len(data), limit) from None
            del output  # before the next one is allocated
            capacity = min(limit, _GROWTH * capacity)
        else:
            return bytes(memoryview(output)[:length])


# In the order of the codecs' numbers: a look-up by Enum members would cost a small batch 1 us.
_DECODERS: tuple[Callable[[memoryview, int, bytearray | None], bytes], ...] = (
    _copy,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
