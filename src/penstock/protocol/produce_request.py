"""Decodes Produce requests by position: each partition's records are a view of the receive buffer.

Nothing is copied, so a batch can be checked, stamped and written where it was received. The batches
themselves are not read. Invariant: no partition occurs twice, and every view lies in the body.
"""

import struct
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.model.values import new_tuple
from penstock.protocol.decoder import skip_tags
from penstock.protocol.malformed import MalformedMessage, MalformedRequest, RequestOverLimit
from penstock.protocol.request_budget import STRUCT_ELEMENTS, RequestBudget
from penstock.protocol.unsigned_varint import read_unsigned_varint

OLD_VERSIONS: Final = range(3)  # carry message formats 0 and 1, which are not read here
VERSIONS: Final = range(3, 13)  # 13 names topics by id
FIRST_FLEXIBLE_VERSION: Final = 9

# Plain tuples, because they are created for every partition of every request.
PartitionRecords = tuple[int, memoryview | None]
TopicRecords = tuple[str, list[PartitionRecords]]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_INDEX_TWO_BYTES: Final = struct.Struct(">iBB")  # a length, or its first byte and the next field
_LEAST_PARTITION_BYTES: Final = 8  # classic; flexible: index, length, tags
_LEAST_FLEXIBLE_PARTITION_BYTES: Final = 6
_LEAST_TOPIC_BYTES: Final = 6
_LEAST_FLEXIBLE_TOPIC_BYTES: Final = 3


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int  # as sent: the handler checks it
    timeout_ms: int
    topics: list[TopicRecords]  # records are None if the client sent null

    def without_records(self) -> "ProduceRequest":
        """A copy to keep after the receive buffer is reused."""
        topics: list[TopicRecords] = [
            (topic, [(number, None) for number, _ in entries]) for topic, entries in self.topics
        ]
        return self._replace(topics=topics)


def read_produce_request(
    body: memoryview, version: int, budget: RequestBudget | None = None
) -> ProduceRequest:
    """Decode the request, which must fill the body; raises MalformedRequest or RequestOverLimit."""
    assert version in VERSIONS, version
    read = _read_flexible if version >= FIRST_FLEXIBLE_VERSION else _read_classic
    return _read(read, body, version, budget)


def read_old_produce_request(
    body: memoryview, version: int, budget: RequestBudget | None = None
) -> ProduceRequest:
    """Like `read_produce_request`, for the versions before transactions."""
    assert version in OLD_VERSIONS, version
    return _read(_read_old, body, version, budget)


def _read(
    read: Callable[[memoryview, int, RequestBudget], tuple[ProduceRequest, int]],
    body: memoryview,
    version: int,
    budget: RequestBudget | None,
) -> ProduceRequest:
    try:
        request, position = read(body, len(body), budget or RequestBudget())
    except (struct.error, IndexError):
        raise _malformed(version, f"ends early, after {len(body)} bytes") from None
    except UnicodeDecodeError as error:
        raise _malformed(version, f"has a string that is not UTF-8: {error}") from None
    except RequestOverLimit:
        raise
    except MalformedMessage as error:
        raise _malformed(version, str(error)) from None
    if position != len(body):
        raise _malformed(version, f"ends at byte {position} of {len(body)}")
    duplicate = _find_duplicate(request.topics)
    if duplicate is not None:
        raise _malformed(version, f"{duplicate[0]}-{duplicate[1]} occurs twice")
    return request


def _read_classic(body: memoryview, end: int, budget: RequestBudget) -> tuple[ProduceRequest, int]:
    (length,) = _INT16.unpack_from(body)
    transactional_id, position = _read_text(body, 2, length, end)
    return _read_classic_from(position, transactional_id, body, end, budget)


def _read_old(body: memoryview, end: int, budget: RequestBudget) -> tuple[ProduceRequest, int]:
    return _read_classic_from(0, None, body, end, budget)


def _read_classic_from(
    position: int,
    transactional_id: str | None,
    body: memoryview,
    end: int,
    budget: RequestBudget,
) -> tuple[ProduceRequest, int]:
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(body, position)
    position += _ACKS_TIMEOUT_COUNT.size
    _check_count("topics", count, _LEAST_TOPIC_BYTES, end - position)
    budget.charge("topics", count * STRUCT_ELEMENTS)
    topics: list[TopicRecords] = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(body, position)
        name, position = _read_name(body, position + 2, length, end)
        (partitions,) = _INT32.unpack_from(body, position)
        position += 4
        _check_count("partitions", partitions, _LEAST_PARTITION_BYTES, end - position)
        budget.charge("partitions", partitions * STRUCT_ELEMENTS)
        entries, position = _read_classic_partitions(body, position, partitions, end)
        topics.append((name, entries))
    return new_tuple(ProduceRequest, (transactional_id, acks, timeout_ms, topics)), position


def _read_classic_partitions(
    body: memoryview, position: int, count: int, end: int
) -> tuple[list[PartitionRecords], int]:
    entries: list[PartitionRecords] = []
    unpack = _INDEX_LENGTH.unpack_from
    for _ in range(count):
        index, length = unpack(body, position)
        position += 8
        if length < 0:
            _check_null("records", length)
            entries.append((index, None))
            continue
        after = position + length
        if after > end:
            raise _too_long("records", length, end - position)
        entries.append((index, body[position:after]))
        position = after
    return entries, position


def _read_flexible(body: memoryview, end: int, budget: RequestBudget) -> tuple[ProduceRequest, int]:
    if body[0]:
        length, position = read_unsigned_varint(body, 0)
        transactional_id, position = _read_text(body, position, length - 1, end)
    else:  # null, as in every plain producer's request
        transactional_id, position = None, 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = read_unsigned_varint(body, position + _ACKS_TIMEOUT.size)
    _check_count("topics", count - 1, _LEAST_FLEXIBLE_TOPIC_BYTES, end - position)
    budget.charge("topics", (count - 1) * STRUCT_ELEMENTS)
    topics: list[TopicRecords] = []
    for _ in range(count - 1):
        length, position = read_unsigned_varint(body, position)
        name, position = _read_name(body, position, length - 1, end)
        partitions, position = read_unsigned_varint(body, position)
        partitions -= 1
        _check_count("partitions", partitions, _LEAST_FLEXIBLE_PARTITION_BYTES, end - position)
        budget.charge("partitions", partitions * STRUCT_ELEMENTS)
        entries, position = _read_flexible_partitions(body, position, partitions, end, budget)
        # Tagged fields are rare, and a call that finds none costs as much as a partition.
        position = skip_tags(body, position, end, budget) if body[position] else position + 1
        topics.append((name, entries))
    position = skip_tags(body, position, end, budget) if body[position] else position + 1
    return new_tuple(ProduceRequest, (transactional_id, acks, timeout_ms, topics)), position


def _read_flexible_partitions(
    body: memoryview, position: int, count: int, end: int, budget: RequestBudget
) -> tuple[list[PartitionRecords], int]:
    entries: list[PartitionRecords] = []
    unpack = _INDEX_TWO_BYTES.unpack_from
    for _ in range(count):
        index, length, second = unpack(body, position)
        position += 5
        if length > 0x7F:
            if second > 0x7F:
                length, position = read_unsigned_varint(body, position - 1)
            else:  # batches of up to 16 KB, decoded without a call
                length += (second << 7) - 0x80
                position += 1
        after = position + length - 1 if length else position
        if after >= end:  # at least the byte of the tags must follow
            raise _too_long("records", length - 1, end - position)
        entries.append((index, body[position:after] if length else None))
        position = after + 1 if body[after] == 0 else skip_tags(body, after, end, budget)
    return entries, position


def _read_name(body: memoryview, position: int, length: int, end: int) -> tuple[str, int]:
    name, position = _read_text(body, position, length, end)
    if name is None:
        raise MalformedMessage("a topic's name is null")
    return name, position


def _read_text(body: memoryview, position: int, length: int, end: int) -> tuple[str | None, int]:
    if length < 0:
        _check_null("text", length)
        return None, position
    after = position + length
    if after > end:
        raise _too_long("text", length, end - position)
    return str(body[position:after], "utf-8"), after


def _check_count(what: str, count: int, least_bytes: int, available: int) -> None:
    """Reject a count whose entries cannot fit into the remaining bytes, before allocating."""
    if count < 0 or count * least_bytes > available:
        raise MalformedMessage(f"{count} {what} do not fit in {available} bytes")


def _check_null(what: str, length: int) -> None:
    if length != -1:
        raise MalformedMessage(f"{what} has the length {length}")


def _find_duplicate(topics: list[TopicRecords]) -> tuple[str, int] | None:
    """A partition may occur only once, because the response has one entry for it."""
    if len(topics) == 1:  # the usual request: the indexes alone tell
        entries = topics[0][1]
        if len(entries) == 1 or len({index for index, _ in entries}) == len(entries):
            return None
    count = sum(len(entries) for _, entries in topics)
    if len({(name, index) for name, entries in topics for index, _ in entries}) == count:
        return None
    named = Counter((name, index) for name, entries in topics for index, _ in entries)
    return named.most_common(1)[0][0]


def _too_long(what: str, length: int, available: int) -> MalformedMessage:
    return MalformedMessage(f"{what} claims {length} bytes, {available} are there")


def _malformed(version: int, reason: str) -> MalformedRequest:
    return MalformedRequest(f"Produce v{version} {reason}")
