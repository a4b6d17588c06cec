"""Validates batches before an append, and converts them as the leader must. No state, no files.

Ordinary batches are checked by header and CRC only; records are decoded only where the topic
requires it: compaction needs keys, a topic's own codec needs recompression.
"""

from typing import Final

from penstock.config.log_config import LogConfig
from penstock.model.ids import NO_TIMESTAMP
from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    MIN_RECORD_BYTES,
    BatchHeader,
    CorruptBatch,
    UnsupportedMagic,
    check_client_batch,
    check_header,
    is_crc_valid,
    iter_headers,
    read_header,
    stamp_append_time,
)
from penstock.protocol.checksum import crc32c
from penstock.protocol.compression import Codec
from penstock.protocol.records import change_codec, default_limit, iter_keys, walk_records
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import (
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamp,
    RecordTooLarge,
    SegmentTooSmall,
    UnexpectedOffset,
)
from penstock.storage.producer_replay import get_marker

_CODECS: Final = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec}}
_FOREVER_MS: Final = 2**63 - 1
_MAX_PLAIN_ATTRIBUTES: Final = int(Codec.ZSTD)  # no bit set but the codec's


def validate_batch(batches: memoryview, origin: AppendOrigin, tp: object) -> tuple[int, ...]:
    """The header fields of the single batch of a leader's append, checked with its CRC.

    A bare tuple in BatchHeader's order: an object per batch costs as much as its CRC.
    """
    size = len(batches)
    if size < HEADER_BYTES:
        raise CorruptRecords(
            f"{tp}: {size} bytes are too few for a record batch ({HEADER_BYTES} at least)"
        )
    header: tuple[int, ...] = HEADER.unpack_from(batches)
    _, length, _, magic, crc, attributes, delta, first_ms, max_ms, producer_id, _, _, count = header
    # One test for the batch that nearly every client sends; the slow path finds the error.
    is_usual = (
        magic == MAGIC
        and length == size - LOG_OVERHEAD
        and 0 <= attributes <= _MAX_PLAIN_ATTRIBUTES
        and count == delta + 1 > 0
        and producer_id == -1
        and max_ms >= first_ms >= -1
        and (
            count * MIN_RECORD_BYTES <= size - HEADER_BYTES
            or (attributes and count * MIN_RECORD_BYTES <= default_limit(size - HEADER_BYTES))
        )
    )
    unusual = None if is_usual else BatchHeader._make(header)
    if unusual is not None:
        _check_frame(unusual, size, tp)
    if crc32c(batches[ATTRIBUTES_POSITION : length + LOG_OVERHEAD]) != crc:
        raise CorruptRecords(
            f"{tp}: the batch's CRC does not match its {size} bytes; send it again"
        )
    if unusual is not None:
        _check_unusual(unusual, size, origin, tp)
    return header


def _check_frame(header: BatchHeader, size: int, tp: object) -> None:
    """Check the fields outside the CRC. The order is Kafka's, and decides on the error: with a
    valid CRC an invalid batch is the client's own, and sending it again does not help."""
    if header.magic != MAGIC:
        raise CorruptRecords(f"{tp}: {UnsupportedMagic(header.magic, 0).reason}")
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptRecords(
            f"{tp}: a batch of length {header.batch_length} is too short for its header"
        )
    if header.size > size:
        raise InvalidRecords(
            f"{tp}: a batch of {header.size} bytes is announced, but {size} were sent"
        )


def _check_unusual(header: BatchHeader, size: int, origin: AppendOrigin, tp: object) -> None:
    if header.size < size:
        raise InvalidRecords(
            f"{tp}: {size - header.size} bytes follow the batch; an append holds one batch"
        )
    if (
        origin is AppendOrigin.CLIENT
        and min(header.base_timestamp, header.max_timestamp) < NO_TIMESTAMP
    ):
        raise InvalidTimestamp(
            f"{tp}: timestamp {min(header.base_timestamp, header.max_timestamp)} lies "
            f"before 1970; {NO_TIMESTAMP} stands for none"
        )
    try:
        check_header(header._replace(base_offset=0), size)
        _check_count(header)
        if origin is AppendOrigin.CLIENT:
            check_client_batch(header)
    except CorruptBatch as error:
        raise InvalidRecords(f"{tp}: {error.reason}") from error


def _check_count(header: BatchHeader) -> None:
    """Reject a count of records that could never be decompressed, because it assigns offsets.

    Only in a leader's append: a batch that is already in a log is no reason to cut the log.
    """
    payload_bytes = header.size - HEADER_BYTES
    if header.codec and header.record_count * MIN_RECORD_BYTES > default_limit(payload_bytes):
        raise CorruptBatch(
            f"{header.record_count} records cannot come from {payload_bytes} compressed bytes; "
            f"send smaller batches"
        )


def is_plain(config: LogConfig) -> bool:
    """Whether batches of this topic are stored unchanged, so that appends can skip its config."""
    return (
        not config.compact
        and config.message_timestamp_type == "CreateTime"
        and config.message_timestamp_before_max_ms == _FOREVER_MS
        and config.compression_type == "producer"
    )


def prepare(
    batches: memoryview,
    header: BatchHeader,
    config: LogConfig,
    *,
    now_ms: int,
    origin: AppendOrigin,
    tp: object,
) -> tuple[memoryview, BatchHeader]:
    """Check the batch against the topic's config, convert it and set append time."""
    if header.attributes & CONTROL:
        return batches, header
    is_deferred = origin is AppendOrigin.DEFERRED
    if not is_deferred:
        _check_size(len(batches), config, tp)  # first, because everything below costs more
    limit = _opened_limit(header, config)
    if config.compact and origin is AppendOrigin.CLIENT:
        _check_keys(batches, limit, tp)
    wanted = _CODECS.get(config.compression_type)
    if wanted is not None and wanted != header.codec:
        batches, header = _recompress(batches, header, wanted, limit, tp)
        if not is_deferred:
            _check_size(len(batches), config, tp)
    if config.message_timestamp_type == "LogAppendTime":
        stamp_append_time(batches, 0, len(batches), now_ms)
        return batches, read_header(batches)
    if not is_deferred:
        check_times(header, config, now_ms, tp)
    return batches, header


def check_times(header: BatchHeader, config: LogConfig, now_ms: int, tp: object) -> None:
    """Check the header's timestamps against the broker's clock; -1 means that there is none."""
    latest = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest:
        raise InvalidTimestamp(
            f"{tp}: timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms "
            f"ahead of the broker's clock; message.timestamp.after.max.ms allows "
            f"{config.message_timestamp_after_max_ms}"
        )
    if 0 <= header.base_timestamp < now_ms - config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"{tp}: timestamp {header.base_timestamp} is "
            f"{now_ms - header.base_timestamp} ms behind the broker's clock; "
            f"message.timestamp.before.max.ms allows {config.message_timestamp_before_max_ms}"
        )


def _check_size(size: int, config: LogConfig, tp: object) -> None:
    if size > config.max_message_bytes:
        raise RecordTooLarge(
            f"{tp}: a batch of {size} bytes exceeds max.message.bytes "
            f"{config.max_message_bytes}; send smaller batches or raise it"
        )
    if size > config.segment_bytes:
        raise SegmentTooSmall(
            f"{tp}: a batch of {size} bytes exceeds segment.bytes {config.segment_bytes}; "
            f"send smaller batches or raise it"
        )


def _opened_limit(header: BatchHeader, config: LogConfig) -> int:
    """The largest decompressed size. On a compacted topic no more than compaction can read."""
    limit = config.decompression_limit_bytes
    return min(default_limit(header.size - HEADER_BYTES), limit) if config.compact else limit


def _check_keys(batches: memoryview, limit: int, tp: object) -> None:
    try:
        for index, (_, key, _, _) in enumerate(iter_keys(batches, limit=limit)):
            if key is None:
                raise InvalidRecords(
                    f"{tp} is compacted: record {index} of the batch has no key; give it one"
                )
    except CorruptBatch as error:
        raise InvalidRecords(f"{tp}: {error.reason}") from error


def _recompress(
    batches: memoryview, header: BatchHeader, codec: Codec, limit: int, tp: object
) -> tuple[memoryview, BatchHeader]:
    """Walk the records to validate them, but do not build them: a small batch may hold a
    million."""
    try:
        encoded, walk = walk_records(batches, limit=limit)
        for _ in walk:
            pass
    except CorruptBatch as error:
        raise InvalidRecords(f"{tp}: {error.reason}") from error
    converted = change_codec(header, encoded, codec)
    return memoryview(converted), read_header(converted)


def validate_fetched(
    batches: memoryview, end_offset: int, tp: object
) -> list[tuple[int, BatchHeader]]:
    """All whole batches fetched from the leader, which must continue at `end_offset`."""
    try:
        located = list(iter_headers(batches))
        for position, header in located:
            check_header(header, len(batches) - position)
    except CorruptBatch as error:
        raise CorruptRecords(f"{tp}: {error.reason}; fetch again") from error
    for position, header in located:
        if header.base_offset < end_offset:
            raise UnexpectedOffset(
                f"{tp} ends at {end_offset}, the leader's batch begins at "
                f"{header.base_offset}; truncate to the leader's epoch end and fetch again"
            )
        if not is_crc_valid(batches, position, header.size):
            raise CorruptRecords(
                f"{tp}: CRC of the batch at offset {header.base_offset} does not match; fetch again"
            )
        if header.attributes & CONTROL and header.producer_id >= 0:
            get_marker(batches[position : position + header.size], tp)
        end_offset = header.next_offset
    if not located:
        raise InvalidRecords(f"{tp}: {len(batches)} bytes hold no whole batch")
    return located
