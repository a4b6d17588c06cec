"""What a task of an audit does on an executor: look at every batch of a range, and report; or hand
over the records of its sound batches, to be compared with others.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.codec.bulk_path import choose_decoder
from penstock.spark.codec.row_columns import COLUMN_TYPES
from penstock.spark.codec.visible_batches import FetchedBatch, OffsetBounds
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.jobs.range_audit import AuditRange, RangeAudit, RangeReport
from penstock.spark.jobs.range_reading import AuditedReply, RangeReader

if TYPE_CHECKING:
    from penstock.spark.codec.row_columns import RowChunk

_DECODED = ("offset", "timestamp", "key", "value", "headers")
_NO_SOURCE = -1
_SCHEMA = pa.schema(
    [
        pa.field("place", pa.int32()),
        *(pa.field(name, COLUMN_TYPES[name]) for name in _DECODED),
        pa.field("source", pa.int64()),
    ]
)


def audit_range(asked: AuditRange, client: ClientSettings) -> RangeReport:
    audit = RangeAudit(asked)
    for _ in RangeReader(shared_client(client), audit):
        pass
    return audit.report()


def read_records(asked: AuditRange, place: int, client: ClientSettings) -> Iterator[pa.RecordBatch]:
    """Of the range's own sound batches; control batches have none. `place` names the partition."""
    for looked in RangeReader(shared_client(client), RangeAudit(asked)):
        for source, batches in groupby(looked.sound, key=_source):
            for chunk in _decode(looked, batches):
                yield _rows(chunk, place, source)


def _source(placed: FetchedBatch) -> int:
    """Who numbered these records: sequences are one producer's, of one epoch."""
    header = placed.header
    if not header.has_producer:
        return _NO_SOURCE
    return (header.producer_id & (1 << 46) - 1) << 16 | header.producer_epoch & 0xFFFF


def _decode(looked: AuditedReply, batches: Iterable[FetchedBatch]) -> "Iterator[RowChunk]":
    wanted = [each for each in batches if each.header.record_count and not each.header.is_control]
    decode = choose_decoder(None, sum(each.header.size for each in wanted))
    return decode(looked.fetched, wanted, OffsetBounds(0, 2**63 - 1), _DECODED)


def _rows(chunk: "RowChunk", place: int, source: int) -> pa.RecordBatch:
    columns = [
        pa.repeat(pa.scalar(place, pa.int32()), chunk.rows),
        *(chunk.columns[name] for name in _DECODED),
        pa.repeat(pa.scalar(source, pa.int64()), chunk.rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
