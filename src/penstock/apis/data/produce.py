"""Produce (key 0), versions 0-12: batches are checked, stamped and appended in the receive buffer.

Versions 0-2 carry older message formats (see `old_produce`); 3 added format 2, 5 log start offsets,
7 zstd, 8 error messages, 10 the current leader as a hint, 11 and 12 additions for transactions (see
`transactional_produce`). Nothing is awaited and no records are kept: responses are sent when `acks`
is satisfied, in order.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.apis.access import allows_topic, allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.data.leader_hints import LeaderHint, find_leader_hint, find_nodes
from penstock.apis.data.old_produce import refuse_old_formats
from penstock.apis.data.produce_response import FIRST_WITH_HINTS, encode_produce_response
from penstock.apis.throttling import find_throttle
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
from penstock.protocol.frames import MAX_FRAME_BYTES
from penstock.protocol.produce_request import ProduceRequest, read_produce_request
from penstock.purgatory.delayed_operations import WatchedOperation
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.replica_manager import ReplicaManager
from penstock.security.authorizer import AclOperation, AllowAll
from penstock.storage.engine import AppendOrigin

if TYPE_CHECKING:
    from penstock.apis.services import Services

FIRST_WITH_BATCHES: Final = 3  # message format 2
FIRST_WITH_ZSTD: Final = 7
UNCOUNTED_BYTES: Final = 32 * 1024  # a usual batch: counting costs it more than reading
_FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1  # the attributes' low byte
_ZSTD: Final = int(Codec.ZSTD)
_UNKNOWN: Final = Offset(-1)
_NONE: Final = ErrorCode.NONE

Batches = list[tuple[TopicPartition, memoryview]]
Refusals = dict[int, PartitionAppended]  # by the partition's position in the request


def produce(request: Request, services: "Services") -> None:
    if request.version < FIRST_WITH_BATCHES:
        refuse_old_formats(request, services)
        return
    produced = read_produce_request(request.message, request.version, request.budget)
    batches, refused, is_transactional, is_looked_into = _sort_out(request, services, produced)
    write = _write
    if is_looked_into:
        has_half, has_delayed = _find_looked_into(services.replicas, produced)
        if has_delayed:
            write = _divide_and_write
        if has_half:
            from penstock.apis.data.half_produce import refuse_what_is_no_half

            batches, refused = refuse_what_is_no_half(request, services, batches, refused)
    if is_transactional:
        # Imported lazily, so that start-up does not wait for it.
        from penstock.apis.data.transactional_produce import write_verified

        verified = partial(write, request, services)
        write_verified(request, services, produced, batches, refused, verified)
        return
    write(request, services, produced, batches, refused)


def _find_looked_into(replicas: ReplicaManager, produced: ProduceRequest) -> tuple[bool, bool]:
    """Whether the request has half topics, and topics with delayed messages."""
    has_half = has_delayed = False
    half_topics, delayed_topics = replicas.half_topics, replicas.delayed_topics
    for topic, _ in produced.topics:
        if topic in half_topics:
            has_half = True
        elif topic in delayed_topics:
            has_delayed = True
    return has_half, has_delayed


def _divide_and_write(
    request: Request,
    services: "Services",
    produced: ProduceRequest,
    batches: Batches,
    refused: Refusals,
) -> None:
    """The request has topics with delayed messages."""
    from penstock.apis.data.divided_produce import write_divided

    write = partial(_write, request, services)
    reply = partial(_reply, request, services)
    write_divided(request, services, produced, batches, refused, write, reply)


def _write(
    request: Request,
    services: "Services",
    produced: ProduceRequest,
    batches: Batches,
    refused: Refusals,
) -> None:
    def done(results: list[PartitionAppended]) -> None:
        _reply(request, services, produced, _merge(results, refused) if refused else results)

    if not batches:
        done([])
        return
    watched = services.replicas.append(
        batches,
        acks=produced.acks,
        timeout_ms=max(produced.timeout_ms, 0),
        origin=AppendOrigin.CLIENT,
        done=done,
    )
    if watched is not None and watched.ending is None:
        # The receive buffer is reused: a delayed request may hold no view of it.
        request.message = None
        produced = produced.without_records()
        _delay(request, services, watched)


def _delay(
    request: Request, services: "Services", watched: WatchedOperation[TopicPartition]
) -> None:
    def cancel() -> None:
        services.replicas.produce_purgatory.cancel(watched)

    request.in_flight.let_next_start()
    request.in_flight.on_close(cancel)


def _sort_out(
    request: Request, services: "Services", produced: ProduceRequest
) -> tuple[Batches, Refusals, bool, bool]:
    """The batches to append, the refusals, whether a batch is transactional, and whether a topic's
    records are looked into."""
    batches: Batches = []
    refused: Refusals = {}
    has_transactional = is_looked_into = False
    replicas = services.replicas
    find_traffic, looked_into = replicas.traffic.find, replicas.looked_into
    allows_all = isinstance(services.authorizer, AllowAll)
    takes_zstd = request.version >= FIRST_WITH_ZSTD
    position = 0
    for topic, entries in produced.topics:
        find_traffic(topic).produces += len(entries)
        if topic in looked_into:
            is_looked_into = True
        is_allowed = allows_all or allows_topic(request, services, AclOperation.WRITE, topic)
        for index, records in entries:
            if records is None or len(records) < HEADER_BYTES:
                refusal = _MISSING if is_allowed else _DENIED
            else:
                flags = records[_FLAGS_POSITION]
                if flags & TRANSACTIONAL:
                    has_transactional = True
                if not is_allowed:
                    refusal = _DENIED
                elif records[MAGIC_POSITION] != MAGIC:
                    refusal = _refuse_magic(records[MAGIC_POSITION])
                elif not takes_zstd and flags & CODEC_MASK == _ZSTD:
                    refusal = _ZSTD_REFUSED
                else:
                    batches.append((new_tuple(TopicPartition, (topic, index)), records))
                    position += 1
                    continue
            refused[position] = refusal
            position += 1
    if has_transactional and not _may_use_transactions(
        request, services, produced.transactional_id
    ):
        return [], dict.fromkeys(range(position), _TRANSACTIONS_DENIED), False, is_looked_into
    return batches, refused, has_transactional, is_looked_into


def _may_use_transactions(
    request: Request, services: "Services", transactional_id: str | None
) -> bool:
    """Called if a batch is transactional, whatever the request declares (CVE-2018-17196)."""
    return transactional_id is not None and allows_transaction(
        request, services, AclOperation.WRITE, transactional_id
    )


def _merge(results: list[PartitionAppended], refused: Refusals) -> list[PartitionAppended]:
    merged: list[PartitionAppended] = []
    remaining = iter(results)
    for position in range(len(results) + len(refused)):
        refusal = refused.get(position)
        merged.append(next(remaining) if refusal is None else refusal)
    return merged


def _reply(
    request: Request,
    services: "Services",
    produced: ProduceRequest,
    results: list[PartitionAppended],
) -> None:
    throttle_ms = _use_quota(request) if services.quotas.is_active else 0
    if produced.acks == 0:
        _end_without_reply(request, produced, results)
        return
    hints: dict[int, LeaderHint] = {}
    for result in results:
        if result[0] is not _NONE:
            hints = _count_errors(request, services, produced, results)
            break
    frame = encode_produce_response(
        version=request.version,
        correlation_id=request.correlation_id,
        topics=produced.topics,
        results=results,
        hints=hints,
        nodes=find_nodes(request, services, hints.values()) if hints else (),
        throttle_ms=throttle_ms,
    )
    request.in_flight.reply((frame,))


def _use_quota(request: Request) -> int:
    """The records are written: the client waits afterwards."""
    throttle = find_throttle(request)
    if throttle is None:
        return 0
    throttle.use_producer_bytes()
    return throttle.write_throttle_ms()


def _count_errors(
    request: Request,
    services: "Services",
    produced: ProduceRequest,
    results: list[PartitionAppended],
) -> dict[int, LeaderHint]:
    """Returns the leaders of partitions that are not led here, by position."""
    hints = {}
    for position, result in enumerate(results):
        code = result[0]
        if code is not _NONE:
            request.count_error(code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= FIRST_WITH_HINTS:
            hints[position] = find_leader_hint(services, _partition_at(produced, position))
    return hints


def _end_without_reply(
    request: Request, produced: ProduceRequest, results: list[PartitionAppended]
) -> None:
    """With acks=0 an error closes the connection, as in Kafka."""
    for position, result in enumerate(results):
        if result.code is not _NONE:
            partition = _partition_at(produced, position)
            request.in_flight.close(
                f"a batch for {partition} with acks=0 was refused with {result.code.name}: "
                f"{result.message or result.code.message}"
            )
            return
    request.in_flight.reply_nothing()


def _partition_at(produced: ProduceRequest, position: int) -> TopicPartition:
    for topic, entries in produced.topics:
        if position < len(entries):
            return TopicPartition(topic, entries[position][0])
        position -= len(entries)
    raise AssertionError(f"the request has no partition at position {position}")


def _refuse(code: ErrorCode, message: str | None = None) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


def _refuse_magic(magic: int) -> PartitionAppended:
    return _refuse(
        ErrorCode.INVALID_RECORD,
        f"the batch has message format {magic}, only {MAGIC} is supported; use a newer client",
    )


_DENIED: Final = _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_TRANSACTIONS_DENIED: Final = _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_MISSING: Final = _refuse(
    ErrorCode.INVALID_RECORD,
    f"a partition of a request carries one record batch, of at least {HEADER_BYTES} bytes",
)
_ZSTD_REFUSED: Final = _refuse(
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    f"zstd needs Produce version {FIRST_WITH_ZSTD} or later; use a newer client or another codec",
)

API: Final = Api(
    key=ApiKey.PRODUCE,
    versions=range(13),
    direct=produce,
    max_frame_bytes=MAX_FRAME_BYTES,  # so socket.request.max.bytes applies
    elements_share=3 / 4,  # 10,000 topics with a partition each, and more
    uncounted_bytes=UNCOUNTED_BYTES,
)
