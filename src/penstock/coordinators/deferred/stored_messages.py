"""Reads messages from a shard's log, where their values stay until they are delivered."""

from bisect import bisect_left
from collections.abc import Sequence

from penstock.coordinators.deferred.due_index import DueEntry
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord, decode_record
from penstock.coordinators.deferred.values import DeferredMessage
from penstock.coordinators.runtime.dependencies import CoordinatorLog, Report
from penstock.coordinators.runtime.record_batches import find_decoded
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.batch import CorruptBatch, is_crc_valid, iter_headers
from penstock.protocol.records import select_records

_CHUNK_BYTES = 64 * 1024  # of messages that lie together; others are read one by one


async def read_messages(
    log: CoordinatorLog, partition: int, entries: Sequence[DueEntry], report: Report
) -> list[DeferredMessage]:
    """In the order of the entries, due as these say: a message that was held did not know. Raises
    Refusal if one cannot be read."""
    wanted = {entry.offset: entry.number for entry in entries}
    messages: dict[int, DeferredMessage] = {}
    offsets = sorted(wanted)
    for offset in offsets:
        if wanted[offset] not in messages:
            chunk = await log.read(partition, offset, _CHUNK_BYTES)
            messages |= _find_messages(chunk.batches, wanted, offsets, report)
    missing = [entry for entry in entries if entry.number not in messages]
    if missing:
        raise Refusal(
            ErrorCode.CORRUPT_MESSAGE, f"no message can be read at offset {missing[0].offset}"
        )
    return [messages[entry.number]._replace(due_ms=entry.due_ms) for entry in entries]


def _find_messages(
    data: bytes, wanted: dict[int, int], offsets: Sequence[int], report: Report
) -> dict[int, DeferredMessage]:
    """By number; `wanted` has the number of each by its offset, and `offsets` are sorted. Others,
    perhaps thousands, are not decoded: messages that are due together were sent at any time."""
    messages: dict[int, DeferredMessage] = {}
    view = memoryview(data)
    try:
        for position, header in iter_headers(data):
            first = bisect_left(offsets, header.base_offset)
            inside = offsets[first : bisect_left(offsets, header.next_offset)]
            if not inside or header.is_control:
                continue
            if not is_crc_valid(data, position, header.size):
                report(f"the batch at offset {header.base_offset} has a wrong CRC; skipping it")
                continue
            for record in select_records(view[position : position + header.size], inside):
                _put_if_wanted(
                    messages, wanted[record.offset], find_decoded(record, decode_record, report)
                )
    except CorruptBatch as error:
        report(f"skipping the rest of this chunk: {error}")
    return messages


def _put_if_wanted(
    messages: dict[int, DeferredMessage], number: int, decoded: DeferredRecord | None
) -> None:
    match decoded:
        case MessageRecord(decoded_number, DeferredMessage() as message) if (
            decoded_number == number
        ):
            messages[number] = message
