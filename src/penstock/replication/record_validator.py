"""Validates the records of a producer's batch before the leader appends it, above any engine.

Only clients' batches: followers take what the leader has validated, and coordinators build their
own. Invariant: a batch is refused as a whole or passes unchanged, except that a wrong maximum
timestamp in its header is corrected, as in Kafka. Damage in transit keeps its own error, because
only that one tells a client to send the batch again.
"""

from struct import Struct
from typing import Final

from penstock.config.log_config import LogConfig
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TIMESTAMP, Offset
from penstock.protocol import record_walk
from penstock.protocol.batch import (
    APPEND_TIME,
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    MAX_CODEC_ID,
    CorruptBatch,
    is_crc_valid,
    stamp_max_timestamp,
)
from penstock.protocol.compression import Codec, decompress, new_scratch
from penstock.protocol.record_walk import walk_records
from penstock.protocol.varint import MAX_INT64, MIN_INT64
from penstock.replication.delayed_produce import PartitionAppended, RecordErrors
from penstock.replication.storage_errors import code_of, message_of
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import StorageError, without_frames
from penstock.storage.log_validator import validate_batch

# Attributes, base timestamp, maximum timestamp and count of records in a batch's header.
_FIELDS: Final = Struct(">h4xqq14xi")
_UNKNOWN: Final = Offset(-1)
_CODECS: Final = tuple(Codec)  # by number: Codec(number) takes 0.3 us

# Decompression blocks the event loop. A request of 32 KB can name 30 batches that each hold almost
# their limit; without a bound for all of them no other client is served for seconds.
MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024

_FLAWS: Final = {
    record_walk.CUT_OFF: "the batch ends before the record does",
    record_walk.BAD_VARINT: "a varint exceeds its type",
    record_walk.BAD_LENGTH: "its length leaves the batch",
    record_walk.BAD_OFFSET_DELTA: "its offset delta is not its index",
    record_walk.BAD_KEY: "its key has a length below -1",
    record_walk.BAD_VALUE: "its value has a length below -1",
    record_walk.BAD_HEADER_COUNT: "its count of headers does not fit into the record",
    record_walk.BAD_HEADER_KEY: "a header has no key",
    record_walk.BAD_HEADER_VALUE: "a header's value has a length below -1",
    record_walk.BAD_END: "its fields do not end where the record does",
}


class RecordValidator:
    """Owned by the replica manager and called on its event loop alone: batches share a buffer."""

    def __init__(self) -> None:
        self._scratch = new_scratch()
        self._decompressed_bytes = 0  # by the batches of the current request

    def begin_request(self) -> None:
        """MAX_REQUEST_BYTES bounds the batches from here to the next call."""
        self._decompressed_bytes = 0

    def find_refusal(
        self, records: memoryview, config: LogConfig, tp: object, now_ms: int
    ) -> PartitionAppended | None:
        """The result for a batch with invalid records; None: the engine may append it.

        What the header alone rules out is left to the engine, which refuses it for certain.
        """
        size = len(records)
        if size < HEADER_BYTES or size > config.max_message_bytes:
            return None
        attributes, base_ms, max_ms, count = _FIELDS.unpack_from(records, ATTRIBUTES_POSITION)
        codec = attributes & CODEC_MASK
        if codec > MAX_CODEC_ID or base_ms < NO_TIMESTAMP or max_ms < NO_TIMESTAMP:
            return None
        data: bytes
        if codec:
            content = self._decompress(_CODECS[codec], records, config, tp)
            if isinstance(content, PartitionAppended):
                return content
            data = content
        else:
            data = bytes(records[HEADER_BYTES:])
        least, greatest = MIN_INT64, MAX_INT64
        has_own_times = (
            not attributes & APPEND_TIME and config.message_timestamp_type == "CreateTime"
        )
        if has_own_times:
            # Comparisons, because calls of min and max took 0.5 us here. Neither a timestamp nor a
            # delta may leave 64 bits.
            before_ms = config.message_timestamp_before_max_ms
            latest_ms = now_ms + config.message_timestamp_after_max_ms
            least = -base_ms if before_ms >= now_ms else now_ms - before_ms - base_ms
            if latest_ms > MAX_INT64:
                latest_ms = MAX_INT64
            if base_ms >= 0 or latest_ms < MAX_INT64:
                greatest = latest_ms - base_ms
        faults: list[tuple[int, int]] = []
        needs_keys = "compact" in config.cleanup_policy
        flaw, index, latest = walk_records(
            data, count, least, greatest, NO_TIMESTAMP - base_ms, needs_keys, faults
        )
        if flaw:
            return _refuse_framing(records, tp, flaw, index)
        if faults:
            return _refuse_records(records, tp, faults, config)
        if has_own_times and base_ms + latest != max_ms and count > 0:
            _correct_max_timestamp(records, max(base_ms + latest, NO_TIMESTAMP), max_ms)
        return None

    def _decompress(
        self, codec: Codec, records: memoryview, config: LogConfig, tp: object
    ) -> bytes | PartitionAppended:
        """The batch's records, or its refusal."""
        if self._decompressed_bytes >= MAX_REQUEST_BYTES:
            return _refuse_request(tp)
        limit = config.decompression_limit_bytes
        try:
            data = decompress(codec, records[HEADER_BYTES:], limit=limit, scratch=self._scratch)
        except CorruptBatch as error:
            self._decompressed_bytes += limit  # at most: it stopped there
            return _refuse_batch(records, tp, f"{tp}: {error.reason}", ())
        self._decompressed_bytes += len(data)
        return data


def _refuse_request(tp: object) -> PartitionAppended:
    """A retriable code, because the batch may be valid."""
    text = (
        f"{tp}: earlier batches of the request hold {MAX_REQUEST_BYTES} bytes decompressed, which "
        f"is as much as is checked at once; send this one again"
    )
    return PartitionAppended(ErrorCode.REQUEST_TIMED_OUT, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, text)


def _refuse_framing(records: memoryview, tp: object, flaw: int, index: int) -> PartitionAppended:
    advice = "the producer built a malformed batch, sending it again does not help"
    if flaw == record_walk.TRAILING_BYTES:
        return _refuse_batch(
            records, tp, f"{tp}: bytes follow the {index} records of the batch; {advice}", ()
        )
    text = f"record {index} is malformed: {_FLAWS[flaw]}"
    return _refuse_batch(records, tp, f"{tp}: {text}; {advice}", ((index, text),))


def _refuse_records(
    records: memoryview, tp: object, faults: list[tuple[int, int]], config: LogConfig
) -> PartitionAppended:
    """A record without a key is named for that, whatever its timestamp, and one invalid timestamp
    decides on the code of the batch; both as in Kafka."""
    texts = {
        record_walk.NO_KEY: f"{tp} is compacted: give the record a key",
        record_walk.BAD_TIMESTAMP: "the timestamp is out of range: message.timestamp.before.max.ms "
        f"allows {config.message_timestamp_before_max_ms}, message.timestamp.after.max.ms "
        f"{config.message_timestamp_after_max_ms} from the broker's clock",
    }
    by_index: dict[int, int] = {}
    for index, fault in faults:
        by_index[index] = min(fault, by_index.get(index, fault))
    errors = tuple((index, texts[fault]) for index, fault in by_index.items())
    is_time = record_walk.BAD_TIMESTAMP in by_index.values()
    more = " or more" if len(faults) >= record_walk.MAX_FAULTS else ""
    first, why = errors[0]
    text = f"{tp}: {len(errors)}{more} invalid records, the first is record {first}: {why}"
    code = ErrorCode.INVALID_TIMESTAMP if is_time else ErrorCode.INVALID_RECORD
    return _refuse_batch(records, tp, text, errors, code)


def _refuse_batch(
    records: memoryview,
    tp: object,
    message: str,
    errors: RecordErrors,
    code: ErrorCode = ErrorCode.INVALID_RECORD,
) -> PartitionAppended:
    """Header and CRC are checked first: records of a damaged batch say nothing."""
    try:
        validate_batch(records, AppendOrigin.CLIENT, tp)
    except StorageError as error:
        without_frames(error)
        code, text = code_of(error), message_of(error)
        return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, text)
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message, errors)


def _correct_max_timestamp(records: memoryview, latest_ms: int, max_ms: int) -> None:
    """Look-ups by time trust the header. A batch whose CRC does not match is left as it came, for
    the engine to refuse."""
    if latest_ms != max_ms and is_crc_valid(records, 0, len(records)):
        stamp_max_timestamp(records, latest_ms)
