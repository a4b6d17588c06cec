"""Produce (key 0), versions 0-12: batches are checked, stamped and written where they came in.

Versions 0-2 are for older message formats (see `old_produce`), 3 brought the one taken here, 5
added log start offsets, 7 zstd, 8 error messages, 10 the leader to go to instead, 11 and 12 more of
transactions (see `transactional_produce`). Nothing is awaited and nothing kept of the records:
replies leave when `acks` is satisfied, in order.
"""

from functools import partial
from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.data.leader_hints import find_leader_hint, find_nodes
from penstock.apis.data.old_produce import refuse_old_formats
from penstock.apis.data.produce_response import FIRST_WITH_HINTS, encode_produce_response
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TIMESTAMP, Offset, TopicPartition
from penstock.model.values import new_tuple
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL,
)
from penstock.protocol.compression import Codec
from penstock.protocol.produce_request import ProduceRequest, read_produce_request
from penstock.purgatory.delayed_operations import WatchedOperation
from penstock.replication.delayed_produce import PartitionAppended
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.storage.engine import AppendOrigin

if TYPE_CHECKING:
    from penstock.apis.services import Services

FIRST_WITH_BATCHES = 3  # message format 2
FIRST_WITH_ZSTD = 7
MAX_FRAME_BYTES = 2**31 - 1  # what a frame can have: socket.request.max.bytes is the limit
_FLAGS_POSITION = ATTRIBUTES_POSITION + 1  # the attributes' low byte
_ZSTD = int(Codec.ZSTD)
_UNKNOWN = Offset(-1)
_NONE = ErrorCode.NONE

Batches = list[tuple[TopicPartition, memoryview]]
Refusals = dict[int, PartitionAppended]  # by the place of the partition in the request


def produce(request: Request, services: "Services") -> None:
    if request.version < FIRST_WITH_BATCHES:
        refuse_old_formats(request, services)
        return
    asked = read_produce_request(request.message, request.version)
    batches, refused, is_transactional = _sort_out(request, services, asked)
    if is_transactional:
        # Loaded with the first of them: a start need not wait for it.
        from penstock.apis.data.transactional_produce import write_verified

        write = partial(_write, request, services)
        write_verified(request, services, asked, batches, refused, write)
        return
    _write(request, services, asked, batches, refused)


def _write(
    request: Request,
    services: "Services",
    asked: ProduceRequest,
    batches: Batches,
    refused: Refusals,
) -> None:
    def done(answers: list[PartitionAppended]) -> None:
        _reply(request, services, asked, _merge(answers, refused) if refused else answers)

    if not batches:
        done([])
        return
    waiting = services.replicas.append(
        batches,
        acks=asked.acks,
        timeout_ms=max(asked.timeout_ms, 0),
        origin=AppendOrigin.CLIENT,
        done=done,
    )
    if waiting is not None and waiting.ending is None:
        # The receive buffer is not ours any longer: who waits may hold no view of it.
        request.message = None
        asked = asked.without_records()
        _park(request, services, waiting)


def _park(
    request: Request, services: "Services", waiting: WatchedOperation[TopicPartition]
) -> None:
    def give_up() -> None:
        services.replicas.produce_purgatory.cancel(waiting)

    request.in_flight.let_next_start()
    request.in_flight.on_close(give_up)


def _sort_out(
    request: Request, services: "Services", asked: ProduceRequest
) -> tuple[Batches, Refusals, bool]:
    """What may be written, why the rest may not, and whether a transaction has part in it."""
    batches: Batches = []
    refused: Refusals = {}
    has_transactional = False
    takes_zstd = request.version >= FIRST_WITH_ZSTD
    place = 0
    for topic, entries in asked.topics:
        allowed = services.authorizer.allows(
            request.caller, AclOperation.WRITE, ResourceType.TOPIC, topic
        )
        for index, records in entries:
            if records is None or len(records) < HEADER_BYTES:
                flaw = _MISSING if allowed else _DENIED
            else:
                flags = records[_FLAGS_POSITION]
                if flags & TRANSACTIONAL:
                    has_transactional = True
                if not allowed:
                    flaw = _DENIED
                elif records[MAGIC_POSITION] != MAGIC:
                    flaw = _refuse_magic(records[MAGIC_POSITION])
                elif not takes_zstd and flags & CODEC_MASK == _ZSTD:
                    flaw = _ZSTD_REFUSED
                else:
                    batches.append((new_tuple(TopicPartition, (topic, index)), records))
                    place += 1
                    continue
            refused[place] = flaw
            place += 1
    if has_transactional and not _may_use_transactions(request, services, asked.transactional_id):
        return [], dict.fromkeys(range(place), _TRANSACTIONS_DENIED), False
    return batches, refused, has_transactional


def _may_use_transactions(
    request: Request, services: "Services", transactional_id: str | None
) -> bool:
    """Asked for what the batches are, whatever the request calls itself (CVE-2018-17196)."""
    return transactional_id is not None and services.authorizer.allows(
        request.caller, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _merge(answers: list[PartitionAppended], refused: Refusals) -> list[PartitionAppended]:
    merged: list[PartitionAppended] = []
    remaining = iter(answers)
    for place in range(len(answers) + len(refused)):
        flaw = refused.get(place)
        merged.append(next(remaining) if flaw is None else flaw)
    return merged


def _reply(
    request: Request,
    services: "Services",
    asked: ProduceRequest,
    answers: list[PartitionAppended],
) -> None:
    if asked.acks == 0:
        _end_without_reply(request, asked, answers)
        return
    hints = {}
    if request.version >= FIRST_WITH_HINTS:
        for place, answer in enumerate(answers):
            if answer[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                hints[place] = find_leader_hint(services, _partition_at(asked, place))
    frame = encode_produce_response(
        version=request.version,
        correlation_id=request.correlation_id,
        topics=asked.topics,
        answers=answers,
        hints=hints,
        nodes=find_nodes(request, services, hints.values()) if hints else (),
    )
    request.in_flight.reply((frame,))


def _end_without_reply(
    request: Request, asked: ProduceRequest, answers: list[PartitionAppended]
) -> None:
    """A client that waits for nothing learns of an error by losing its connection, as in Kafka."""
    for place, answer in enumerate(answers):
        if answer.code is not _NONE:
            partition = _partition_at(asked, place)
            request.in_flight.close(
                f"a batch for {partition} with acks=0 was refused with {answer.code.name}: "
                f"{answer.message or answer.code.message}"
            )
            return
    request.in_flight.reply_nothing()


def _partition_at(asked: ProduceRequest, place: int) -> TopicPartition:
    for topic, entries in asked.topics:
        if place < len(entries):
            return TopicPartition(topic, entries[place][0])
        place -= len(entries)
    raise AssertionError(f"the request has no partition at place {place}")


def _refuse(code: ErrorCode, message: str | None = None) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


def _refuse_magic(magic: int) -> PartitionAppended:
    return _refuse(
        ErrorCode.INVALID_RECORD,
        f"the batch has message format {magic}, only {MAGIC} is taken; use a newer client",
    )


_DENIED = _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_TRANSACTIONS_DENIED = _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_MISSING = _refuse(
    ErrorCode.INVALID_RECORD,
    f"a partition's share of a request is one record batch, of {HEADER_BYTES} bytes at least",
)
_ZSTD_REFUSED = _refuse(
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    f"zstd needs Produce version {FIRST_WITH_ZSTD} or later; use a newer client or another codec",
)

API = Api(key=ApiKey.PRODUCE, versions=range(13), direct=produce, max_frame_bytes=MAX_FRAME_BYTES)
