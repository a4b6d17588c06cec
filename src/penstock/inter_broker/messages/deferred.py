"""DeferMessages, EndDeferred and AppendDeferred (private keys 31008 to 31010): bodies.

To bytes and back. Version 1 of DeferMessages added messages of transactions, version 1 of
EndDeferred cancels several. A message has the same bytes as in `__penstock_deferred`, but for its
version.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.defer import SentBy
from penstock.coordinators.deferred.records import (
    read_message,
    read_target,
    write_message,
    write_target,
)
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    InTransaction,
    SequenceRange,
    Target,
)
from penstock.model.ids import TopicId
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.request_budget import RequestBudget

DEFERRED_VERSIONS = range(1)
DEFER_MESSAGES_VERSIONS = range(2)
WITH_TRANSACTIONS = range(1, 2)
END_DEFERRED_VERSIONS = range(2)
WITH_SEVERAL_CANCELS = range(1, 2)
MAX_CANCELS = 500  # of one request: it is one write, and about 10 ms


class DeferMessagesRequest(NamedTuple):
    partition: int  # of __penstock_deferred
    messages: Sequence[DeferredMessage]
    sent_by: SentBy | None
    transaction: InTransaction | None = None


class EndDeferredRequest(NamedTuple):
    partition: int  # of __penstock_deferred
    delay_keys: Sequence[DelayKey]  # of different messages of one topic
    deliver_now: bool  # a single one; else they are cancelled


class AppendDeferredRequest(NamedTuple):
    target: Target
    timeout_ms: int
    batch: bytes


def encode_defer_messages(request: DeferMessagesRequest, version: int) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.partition)
    _write_sent_by(writer, request.sent_by)
    if version in WITH_TRANSACTIONS:
        _write_transaction(writer, request.transaction)
    is_transactional = request.transaction is not None
    writer.array(
        request.messages, _write_transactional_message if is_transactional else write_message
    )
    writer.tags()
    return writer.done()


def decode_defer_messages(
    body: Buffer, version: int, budget: RequestBudget | None = None
) -> DeferMessagesRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    partition, sent_by = reader.int32(), _read_sent_by(reader)
    transaction = _read_transaction(reader) if version in WITH_TRANSACTIONS else None
    messages = reader.array(read_message if transaction is None else _read_transactional_message)
    _close(reader)
    return DeferMessagesRequest(partition, messages, sent_by, transaction)


def _write_transaction(writer: ValueWriter, transaction: InTransaction | None) -> None:
    writer.string(None if transaction is None else transaction.transactional_id)
    writer.int8(transaction is not None and transaction.is_added)


def _read_transaction(reader: ValueReader) -> InTransaction | None:
    transactional_id, is_added = reader.nullable_string(), reader.int8() != 0
    return None if transactional_id is None else InTransaction(transactional_id, is_added)


def _write_transactional_message(writer: ValueWriter, message: DeferredMessage) -> None:
    write_message(writer, message)
    writer.int64(message.commit_delay_ms or 0)


def _read_transactional_message(reader: ValueReader) -> DeferredMessage:
    return read_message(reader)._replace(commit_delay_ms=reader.int64())


def encode_end_deferred(request: EndDeferredRequest, version: int) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.partition)
    writer.uuid(request.delay_keys[0].topic_id)
    delay_ids = [delay_key.delay_id for delay_key in request.delay_keys]
    if version in WITH_SEVERAL_CANCELS:
        assert not request.deliver_now, "only cancels are of several"
        writer.array(delay_ids, ValueWriter.string)
    else:
        (delay_id,) = delay_ids
        writer.string(delay_id)
        writer.int8(request.deliver_now)
    writer.tags()
    return writer.done()


def decode_end_deferred(
    body: Buffer, version: int, budget: RequestBudget | None = None
) -> EndDeferredRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    partition, topic_id = reader.int32(), TopicId(reader.uuid())
    deliver_now = False
    if version in WITH_SEVERAL_CANCELS:
        delay_ids = list(dict.fromkeys(reader.array(ValueReader.string)))
    else:
        delay_ids, deliver_now = [reader.string()], reader.int8() != 0
    _close(reader)
    delay_keys = [DelayKey(topic_id, delay_id) for delay_id in delay_ids]
    return EndDeferredRequest(partition, delay_keys, deliver_now)


def encode_ends(replies: Sequence[CancelReply]) -> bytes:
    """The payload of a response to EndDeferred: words, in the order of the request."""
    return ",".join(reply.value for reply in replies).encode()


def decode_ends(payload: Buffer) -> tuple[CancelReply, ...]:
    return tuple(CancelReply(word) for word in bytes(payload).decode().split(","))


def encode_append_deferred(request: AppendDeferredRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    write_target(writer, request.target)
    writer.int32(request.timeout_ms)
    writer.data(request.batch)
    writer.tags()
    return writer.done()


def decode_append_deferred(
    body: Buffer, budget: RequestBudget | None = None
) -> AppendDeferredRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = AppendDeferredRequest(read_target(reader), reader.int32(), reader.data())
    _close(reader)
    return request


def encode_base_offset(offset: int) -> bytes:
    """The payload of a response to AppendDeferred."""
    writer = ValueWriter(flexible=True)
    writer.int64(offset)
    writer.tags()
    return writer.done()


def decode_base_offset(payload: Buffer) -> int:
    """-1: not known; older brokers do not say it."""
    if not len(payload):
        return -1
    reader = ValueReader(payload, flexible=True)
    offset = reader.int64()
    _close(reader)
    return offset


def _write_sent_by(writer: ValueWriter, sent_by: SentBy | None) -> None:
    writer.int8(sent_by is not None)
    if sent_by is not None:
        write_target(writer, sent_by.target)
        writer.int64(sent_by.producer_id)
        writer.int16(sent_by.producer_epoch)
        writer.int32(sent_by.sequences.first)
        writer.int32(sent_by.sequences.last)


def _read_sent_by(reader: ValueReader) -> SentBy | None:
    if not reader.int8():
        return None
    return SentBy(
        read_target(reader),
        reader.int64(),
        reader.int16(),
        SequenceRange(reader.int32(), reader.int32()),
    )


def _close(reader: ValueReader) -> None:
    reader.tags()
    reader.end()
