"""Control records: those that end a transaction, and ours that stand for records kept elsewhere.

Kafka's other control types do not occur in these logs. Consumers skip every control batch, also of
a type that they do not know.
"""

import struct
from typing import NamedTuple

from penstock.protocol.batch import (
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    read_header,
)
from penstock.protocol.records import Record, build_batch, iter_records

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_VERSION = 0
_ABORT = 0
_COMMIT = 1
_ELSEWHERE = 1000  # far from the types that Kafka assigns


class EndMarker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def build_end_marker_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The one-record batch that commits or aborts the producer's records in this partition."""
    marker = Record(
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, _COMMIT if commit else _ABORT),
        value=_VALUE.pack(_VERSION, coordinator_epoch),
    )
    return build_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )


def build_sequence_batch(header: BatchHeader, *, timestamp_ms: int) -> bytearray:
    """A control batch in place of a producer's batch whose records are all kept elsewhere. It has
    that batch's sequences, so that its producer's state follows from the log as always, and as
    many offsets."""
    assert header.base_sequence >= 0, "without sequences there is nothing to keep"
    record = Record(
        offset=header.base_offset,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, _ELSEWHERE),
        value=b"",
    )
    return build_batch(
        [record],
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_offset_delta=header.last_offset_delta,
        transactional=header.is_transactional,
        control=True,
    )


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a control batch; None for data, other control types, and emptied batches."""
    if not read_header(batch).is_control:
        return None
    record = next(iter_records(batch), None)
    if record is None:
        return None
    control_type = _read_type(record)
    if control_type not in (_ABORT, _COMMIT):
        return None
    return EndMarker(control_type == _COMMIT, _read_coordinator_epoch(record))


def _read_type(record: Record) -> int:
    key = record.key
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"control record at offset {record.offset} has no version and type")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record at offset {record.offset} has version {version}")
    return int(control_type)


def _read_coordinator_epoch(record: Record) -> int:
    # Later versions append fields, so only the known prefix is read.
    value = record.value
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatch(f"end marker at offset {record.offset} has no coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"end marker at offset {record.offset} has version {version}")
    return int(coordinator_epoch)
