"""The work of an audit task on an executor: check every batch of a range and report, or return the
records of its sound batches for comparison.
"""

from collections.abc import Iterable, Iterator, Sequence
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


def audit_range(task: AuditRange, client: ClientSettings) -> RangeReport:
    audit = RangeAudit(task)
    for _ in RangeReader(shared_client(client), audit):
        pass
    return audit.report()


def read_records(
    task: AuditRange, partition_index: int, client: ClientSettings
) -> Iterator[pa.RecordBatch]:
    """The records of the range's own sound batches, each with `partition_index`. Control batches
    have none."""
    for reply in RangeReader(shared_client(client), RangeAudit(task)):
        for source, batches in groupby(reply.sound, key=_source):
            for chunk in _decode(reply, batches, _DECODED):
                rows = _rows(chunk, _DECODED, partition_index)
                yield rows.append_column("source", pa.repeat(pa.scalar(source), chunk.rows))


def read_columns(
    task: AuditRange, partition_index: int, client: ClientSettings, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Like `read_records`, but only these columns, which is faster: batches of many producers are
    decoded together."""
    for reply in RangeReader(shared_client(client), RangeAudit(task)):
        for chunk in _decode(reply, reply.sound, names):
            yield _rows(chunk, names, partition_index)


def _source(batch: FetchedBatch) -> int:
    """Producer id and epoch as one number: sequences are unique within it."""
    header = batch.header
    if not header.has_producer:
        return _NO_SOURCE
    return (header.producer_id & (1 << 46) - 1) << 16 | header.producer_epoch & 0xFFFF


def _decode(
    reply: AuditedReply, batches: Iterable[FetchedBatch], names: Sequence[str]
) -> "Iterator[RowChunk]":
    wanted = [
        batch for batch in batches if batch.header.record_count and not batch.header.is_control
    ]
    decode = choose_decoder(None, sum(batch.header.size for batch in wanted))
    return decode(reply.fetched, wanted, OffsetBounds(0, 2**63 - 1), tuple(names))


def _rows(chunk: "RowChunk", names: Sequence[str], partition_index: int) -> pa.RecordBatch:
    columns = [
        pa.repeat(pa.scalar(partition_index, pa.int32()), chunk.rows),
        *(chunk.columns[name].cast(COLUMN_TYPES[name]) for name in names),
    ]
    return pa.RecordBatch.from_arrays(columns, ["partition_index", *names])
