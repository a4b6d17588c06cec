"""Invalid record batches, each with the error code that Apache Kafka 4.3 returns.

The codes are observed. Where Penstock's code differs, `ours` has it and `why` the reason.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.protocol.batch import (
    APPEND_TIME,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    compute_crc,
    read_header,
)
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import Record, build_batch
from penstock.protocol.varint import encode_varint

MIB = 1024 * 1024
PLAIN, COMPACTED, RECOMPRESSED, NARROW = "plain", "compacted", "recompressed", "narrow"
TOPICS: dict[str, dict[str, object]] = {
    PLAIN: {},
    COMPACTED: {"cleanup.policy": "compact"},
    RECOMPRESSED: {"compression.type": "uncompressed"},
    NARROW: {"max.message.bytes": 1000, "message.timestamp.before.max.ms": 3_600_000},
}


class Case(NamedTuple):
    name: str
    records: bytes | None
    kafka: ErrorCode | None  # None: Kafka never responds
    topic: str = PLAIN
    ours: ErrorCode | None = None
    why: str = ""

    @property
    def expected(self) -> ErrorCode:
        expected = self.kafka if self.ours is None else self.ours
        assert expected is not None
        return expected


def good(now_ms: int, *, count: int = 2, key: bytes | None = b"k", **options: Any) -> bytes:
    records = [Record(offset_delta, now_ms, key, b"value", ()) for offset_delta in range(count)]
    return bytes(build_batch(records, **options))


def changed(batch: bytes, **fields: int) -> bytes:
    """A copy with other header fields and a valid CRC."""
    header = read_header(batch)._replace(**fields)
    return sealed(header, batch[HEADER_BYTES:])


def flagged(batch: bytes, bits: int) -> bytes:
    return changed(batch, attributes=read_header(batch).attributes | bits)


def with_payload(codec: int, payload: bytes, *, count: int, now_ms: int) -> bytes:
    """A batch with this payload instead of records, and a valid length and CRC."""
    header = read_header(good(now_ms))._replace(
        attributes=codec,
        batch_length=HEADER_BYTES - 12 + len(payload),
        last_offset_delta=count - 1,
        record_count=count,
    )
    return sealed(header, payload)


def sealed(header: BatchHeader, payload: bytes) -> bytes:
    batch = bytearray(HEADER.pack(*header)) + payload
    struct.pack_into(">I", batch, CRC_POSITION, compute_crc(batch))
    return bytes(batch)


# -- the cases ---------------------------------------------------------------------------------

_INVALID = ErrorCode.INVALID_RECORD
_CORRUPT = ErrorCode.CORRUPT_MESSAGE
_NONE = ErrorCode.NONE
_FAILED = ErrorCode.UNKNOWN_SERVER_ERROR

_FAILURE = "Kafka's handler fails on it, and the client would try again"
_STRICT = "what has no meaning today is not stored: it may have one tomorrow"


def header_cases(now_ms: int) -> list[Case]:
    one = good(now_ms)
    size = len(one)
    wrong_crc = bytearray(one)
    wrong_crc[-1] ^= 1
    return [
        Case("no records field", None, None, ours=_INVALID, why="a client is answered"),
        Case("nothing", b"", _INVALID),
        Case("a byte", b"\0", _INVALID),
        Case("a header that is cut off", one[:60], _INVALID),
        *(Case(f"magic {magic}", changed(one, magic=magic), _INVALID) for magic in (0, 1)),
        *(
            Case(
                f"magic {magic}",
                changed(one, magic=magic),
                _CORRUPT,
                ours=_INVALID,
                why="the client would send the same again",
            )
            for magic in (3, 127, -1)
        ),
        Case("a wrong CRC", bytes(wrong_crc), _CORRUPT),
        *(
            Case(f"length {length}", changed(one, batch_length=length), _CORRUPT)
            for length in (-(2**31), -1, 0, 13, 48)
        ),
        Case("a length a byte too long", changed(one, batch_length=size - 11), _INVALID),
        Case(
            "length 2^31-1",
            changed(one, batch_length=2**31 - 1),
            _FAILED,
            ours=_INVALID,
            why=_FAILURE,
        ),
        Case("a length a byte too short", changed(one, batch_length=size - 13), _CORRUPT),
        Case("cut off in its records", one[:-1], _INVALID),
        Case("two batches", one + one, _INVALID),
        Case("a byte behind the batch", one + b"\0", _NONE, ours=_INVALID, why=_STRICT),
    ]


def count_cases(now_ms: int) -> list[Case]:
    one = good(now_ms)
    bare = changed(one[:HEADER_BYTES], batch_length=49, record_count=0)
    return [
        Case("no record in one offset", changed(bare, last_offset_delta=0), _INVALID),
        Case("no record in no offset", changed(bare, last_offset_delta=-1), _INVALID),
        *(
            Case(f"{count} of 2 records", changed(one, record_count=count), _INVALID)
            for count in (-(2**31), -1, 0, 1, 3, 2**31 - 1)
        ),
        *(
            Case(f"last offset delta {delta}", changed(one, last_offset_delta=delta), _INVALID)
            for delta in (-(2**31), -1, 0, 2, 2**31 - 1)
        ),
        *(
            Case(
                f"{count} records and as many offsets",
                changed(one, record_count=count, last_offset_delta=count - 1),
                _INVALID,
            )
            for count in (2**31 - 1, 4)
        ),
        Case(
            "3 records and as many offsets, where 2 are",
            changed(one, record_count=3, last_offset_delta=2),
            _INVALID,
        ),
        Case(
            "3 records and as many offsets, where 2 are, compacted",
            changed(one, record_count=3, last_offset_delta=2),
            _INVALID,
            COMPACTED,
        ),
    ]


def attribute_cases(now_ms: int) -> list[Case]:
    one = good(now_ms)
    owned = good(now_ms, producer_id=5, producer_epoch=0, base_sequence=0)
    return [
        *(
            Case(f"codec {codec}", flagged(one, codec), _FAILED, ours=_INVALID, why=_FAILURE)
            for codec in (5, 6, 7)
        ),
        Case("reserved bit 7", flagged(one, 0x80), _NONE, ours=_INVALID, why=_STRICT),
        Case(
            "reserved bit 15", changed(one, attributes=-0x8000), _NONE, ours=_INVALID, why=_STRICT
        ),
        Case("the control bit", flagged(one, CONTROL), _INVALID),
        Case("the control bit, with a producer", flagged(owned, CONTROL), _INVALID),
        Case(
            "the bit of a delete horizon",
            flagged(one, DELETE_HORIZON),
            _NONE,
            ours=_INVALID,
            why="compaction alone sets it",
        ),
        Case("the bit of append time", flagged(one, APPEND_TIME), _NONE),
        Case(
            "transactional without a producer",
            flagged(one, TRANSACTIONAL),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        *(
            Case(
                f"{name} where plain records stand",
                flagged(one, codec),
                _FAILED,
                COMPACTED,
                ours=_INVALID,
                why=_FAILURE,
            )
            for name, codec in (("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4))
        ),
    ]


def time_cases(now_ms: int) -> list[Case]:
    day = 86_400_000
    late = ErrorCode.INVALID_TIMESTAMP
    return [
        Case("two hours ahead", good(now_ms + day // 12), late),
        Case("the end of all times", good(2**63 - 1), late),
        Case("before all times", good(-(2**63)), late),
        Case("a time of -2", good(-2), _NONE, ours=late, why="clients refuse such times"),
        Case("no time at all", good(-1), _NONE),
        Case("two hours behind", good(now_ms - day // 12), late, NARROW),
        Case("no time at all, where it must be new", good(-1), _NONE, NARROW),
    ]


def producer_cases(now_ms: int) -> list[Case]:
    def owned(producer_id: int, epoch: int, sequence: int) -> bytes:
        return good(now_ms, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    return [
        Case("a producer without a sequence", owned(5, 0, -1), _INVALID),
        Case("a producer with a sequence of -2", owned(5, 0, -2), _INVALID),
        Case("a producer without an epoch", owned(5, -1, 0), _NONE, ours=_INVALID, why=_STRICT),
        Case("producer id -2", owned(-2, 0, 0), _NONE, ours=_INVALID, why=_STRICT),
        Case("an epoch and a sequence without a producer", owned(-1, 0, 0), _NONE),
    ]


def record_cases(now_ms: int) -> list[Case]:
    no_key = Case("a record without a key", good(now_ms, key=None), _INVALID, COMPACTED)
    return [no_key, *(case for topic in (PLAIN, COMPACTED) for case in _malformed(now_ms, topic))]


def _malformed(now_ms: int, topic: str) -> list[Case]:
    def case(name: str, records: bytes, kafka: ErrorCode = _INVALID, why: str = "") -> Case:
        ours = _INVALID if why else None
        return Case(f"{name}, {topic}", records, kafka, topic, ours=ours, why=why)

    def of(payload: bytes, count: int = 1, codec: int = 0) -> bytes:
        return with_payload(codec, payload, count=count, now_ms=now_ms)

    body = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0])
    record = encode_varint(len(body)) + body
    misplaced = {
        "a negative offset delta": bytes([0, 0, 1, 2]) + b"k" + bytes([2]) + b"v" + bytes([0]),
        "an offset delta beyond the batch": bytes([0, 0, 8, 2]) + b"k" + bytes([2]) + b"v\0",
    }
    short_key = bytes([0, 0, 0, 3, 2]) + b"v" + bytes([0])
    bodies = {
        "a key longer than the record": bytes([0, 0, 0, 120]) + b"k" + bytes([2]) + b"v\0",
        "a varint of 6 bytes": bytes([0, 0]) + b"\xff" * 5 + b"\1" + bytes([2]) + b"k\2v\0",
    }
    kept = "Kafka numbers the records anew, here they are stored as they came"
    # Kafka takes any negative length for a null key, which only a compacted topic rejects.
    no_key = (_INVALID, "") if topic == COMPACTED else (_NONE, _STRICT)
    return [
        case("a key of length -2", of(encode_varint(len(short_key)) + short_key), *no_key),
        case("noise for records", of(b"\xff" * 100, 2), _FAILED, _FAILURE),
        case("more records than claimed", of(record + record)),
        case("fewer records than claimed", of(record + bytes(50), 2)),
        *(case(name, of(encode_varint(len(body)) + body)) for name, body in bodies.items()),
        *(
            case(name, of(encode_varint(len(body)) + body), _NONE, kept)
            for name, body in misplaced.items()
        ),
    ]


def size_cases(now_ms: int) -> list[Case]:
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    large = bytes(build_batch([Record(0, now_ms, b"k", bytes(1000), ())]))
    huge = bytes(build_batch([Record(0, now_ms, b"k", bytes(2 * MIB), ())]))
    return [
        Case("more than max.message.bytes", large, too_large, NARROW),
        Case("more than message.max.bytes", huge, too_large),
        Case("more than message.max.bytes, compacted", huge, too_large, COMPACTED),
    ]


# -- bombs -------------------------------------------------------------------------------------


def _zeros(codec: Codec, total_bytes: int, piece_bytes: int = 4 * MIB) -> bytes:
    """Concatenated streams, which all codecs allow and which are built quickly."""
    return compress(codec, bytes(piece_bytes)) * (total_bytes // piece_bytes)


def _large_record(value_bytes: int) -> bytes:
    """A valid record."""
    head = b"\0\0\0\2k" + encode_varint(value_bytes)
    return encode_varint(len(head) + value_bytes + 1) + head + bytes(value_bytes + 1)


def bombs(now_ms: int) -> list[tuple[str, bytes]]:
    """Batches of less than 1 MB that decompress to up to 4 GB."""
    payloads = {
        "gzip of zeros": (Codec.GZIP, _zeros(Codec.GZIP, 800 * MIB)),
        "many gzip members": (Codec.GZIP, zlib.compress(b"", wbits=31) * 40_000),
        "snappy of zeros": (Codec.SNAPPY, _zeros(Codec.SNAPPY, 20 * MIB)),
        "a snappy block that claims 2 GB": (Codec.SNAPPY, b"\xff\xff\xff\xff\7" + bytes(1000)),
        "lz4 of zeros": (Codec.LZ4, _zeros(Codec.LZ4, 224 * MIB)),
        "zstd of zeros": (Codec.ZSTD, _zeros(Codec.ZSTD, 4096 * MIB)),
        "zstd of one large record": (Codec.ZSTD, compress(Codec.ZSTD, _large_record(64 * MIB))),
    }
    return [
        (name, with_payload(codec, payload, count=1, now_ms=now_ms))
        for name, (codec, payload) in payloads.items()
    ]


def all_cases(now_ms: int) -> list[Case]:
    kinds: tuple[Callable[[int], list[Case]], ...] = (
        header_cases,
        count_cases,
        attribute_cases,
        time_cases,
        producer_cases,
        record_cases,
        size_cases,
    )
    return [case for kind in kinds for case in kind(now_ms)]
