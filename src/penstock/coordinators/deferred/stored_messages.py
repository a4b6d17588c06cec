"""Reads messages from a shard's log, where their values stay until they are delivered."""

from collections.abc import Sequence

from penstock.coordinators.deferred.due_index import DueEntry
from penstock.coordinators.deferred.loader import DeferredLoader
from penstock.coordinators.deferred.records import MessageRecord
from penstock.coordinators.deferred.values import DeferredMessage
from penstock.coordinators.runtime.dependencies import CoordinatorLog, Report
from penstock.model.errors import ErrorCode, Refusal

_CHUNK_BYTES = 64 * 1024  # of messages that lie together; others are read one by one


async def read_messages(
    log: CoordinatorLog, partition: int, entries: Sequence[DueEntry], report: Report
) -> list[DeferredMessage]:
    """In the order of the entries. Raises Refusal if one cannot be read."""
    wanted = {entry.offset: entry.number for entry in entries}
    messages: dict[int, DeferredMessage] = {}
    for offset in sorted(wanted):
        if wanted[offset] not in messages:
            chunk = await log.read(partition, offset, _CHUNK_BYTES)
            messages |= _find_messages(chunk.batches, wanted, report)
    missing = [entry for entry in entries if entry.number not in messages]
    if missing:
        raise Refusal(
            ErrorCode.CORRUPT_MESSAGE, f"no message can be read at offset {missing[0].offset}"
        )
    return [messages[entry.number] for entry in entries]


def _find_messages(
    data: bytes, wanted: dict[int, int], report: Report
) -> dict[int, DeferredMessage]:
    """By number; `wanted` has the number of each by its offset."""
    messages: dict[int, DeferredMessage] = {}
    for entry in DeferredLoader(report).read(data):
        match entry:
            case MessageRecord(number, DeferredMessage() as message), offset if (
                wanted.get(offset) == number
            ):
                messages[number] = message
    return messages
