"""Produce on topics with delayed messages: what waits is deferred before the rest is appended.

First the messages that wait, durably and with their producer's sequence range; then what is left
of the batch, or a control batch with that range; then the answer. A failure in between is the
producer's to repeat, and a repeat finds what is done. Meanwhile the connection's next request
waits, so that its producers' batches stay in order. Batches that ask for nothing are appended at
once, as ever.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.apis.access import allows_topic
from penstock.apis.api import Request
from penstock.apis.data.transactional_produce import FIRST_WITH_ABORTABLE, FIRST_WITH_IMPLICIT_ADD
from penstock.coordinators.deferred.defer import DeferReply, SentBy
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    InTransaction,
    SequenceRange,
    Target,
)
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TIMESTAMP, Offset, TopicPartition
from penstock.model.slices import Releasable
from penstock.protocol.batch import MAX_SEQUENCE
from penstock.protocol.delay_headers import (
    DELAY_CANCEL,
    CancelRequest,
    DelayRequest,
    without_delay_headers,
)
from penstock.protocol.produce_request import ProduceRequest
from penstock.protocol.records import Record, build_batch
from penstock.purgatory.delayed_operations import Purgatory, WatchedOperation
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.divided_append import DecompressionBudget, Division, check_again, divide
from penstock.replication.transaction_guard import TransactionGuard
from penstock.security.authorizer import AclOperation
from penstock.storage.engine import AppendOrigin

if TYPE_CHECKING:
    from penstock.apis.services import Services

MAX_REQUEST_BYTES = 64 * 1024 * 1024  # decompressed, of the batches that are looked into
MIN_TIMEOUT_MS = 1_000
CANCELS_AT_ONCE = 1_000
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_UNKNOWN = Offset(-1)

Batches = list[tuple[TopicPartition, memoryview]]
Refusals = dict[int, PartitionAppended]  # by the partition's position in the request
Watched = WatchedOperation[TopicPartition]
Reply = Callable[[ProduceRequest, list[PartitionAppended]], None]

# The shard is elsewhere, or not there now. Producers of all versions retry on the code that these
# become, without a metadata request.
_TRANSIENT = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


class _DividedPartition(NamedTuple):
    position: int  # of its result
    tp: TopicPartition
    division: Division


class _Run(NamedTuple):
    """Records that ask for something, and may take effect in any order: no delay id occurs in a
    message and in a cancel."""

    messages: list[DeferredMessage]
    cancels: list[CancelRequest]
    last_index: int  # of its last record in the batch


def write_divided(
    request: Request,
    services: "Services",
    produced: ProduceRequest,
    batches: Batches,
    refused: Refusals,
    write: Callable[[ProduceRequest, Batches, Refusals], None],
    reply: Reply,
) -> None:
    """Call `write` if no batch is divided, and `reply` else. Reads the receive buffer until it
    returns."""
    divided = _Sorted(request, services, produced, batches, refused)
    if divided.waiting:
        _DividedProduce(request, services, divided, reply).start(produced, divided.plain)
    else:
        write(produced, [batch for _, batch in divided.plain], divided.refused)


class _Sorted:
    """The batches of a request: appended as they are, divided, or refused."""

    def __init__(
        self,
        request: Request,
        services: "Services",
        produced: ProduceRequest,
        batches: Batches,
        refused: Refusals,
    ) -> None:
        self.plain: list[tuple[int, tuple[TopicPartition, memoryview]]] = []  # with positions
        self.waiting: list[_DividedPartition] = []
        self.refused = dict(refused)
        self._request, self._services = request, services
        self._acks = produced.acks
        self._budget = DecompressionBudget(MAX_REQUEST_BYTES)
        every_position = range(len(batches) + len(refused))
        positions = (position for position in every_position if position not in refused)
        for position, batch in zip(positions, batches, strict=True):
            self._sort(position, batch)

    def _sort(self, position: int, batch: tuple[TopicPartition, memoryview]) -> None:
        tp, records = batch
        result = self._divide(tp, records)
        if result is None:
            self.plain.append((position, batch))
        elif isinstance(result, Division):
            self.waiting.append(_DividedPartition(position, tp, result))
        else:
            self.refused[position] = result

    def _divide(
        self, tp: TopicPartition, records: memoryview
    ) -> Division | PartitionAppended | None:
        replicas = self._services.replicas
        partition = replicas.find(tp)
        if tp.topic not in replicas.delayed_topics or partition is None:
            return None
        if not partition.accepts_writes or not -1 <= self._acks <= 1:
            return None  # its append says why it is refused
        division = divide(
            partition,
            records,
            self._budget,
            replicas.find_invalid,
            now_ms=self._services.wall_ms(),
        )
        if not isinstance(division, Division):
            return division
        if division.header.is_transactional and division.batch.cancels:
            return _refuse(ErrorCode.INVALID_RECORD, _CANCEL_IN_TRANSACTION)
        return self._check_reply_topics(division) or division

    def _check_reply_topics(self, division: Division) -> PartitionAppended | None:
        for topic in {cancel.reply_topic for cancel in division.batch.cancels} - {None}:
            assert topic is not None
            if not allows_topic(self._request, self._services, AclOperation.WRITE, topic):
                return _refuse(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    f"the answer to a cancel needs WRITE on its reply topic {topic!r}",
                )
            if topic in INTERNAL_TOPICS or self._services.metadata.find_topic(topic) is None:
                return _refuse(
                    ErrorCode.INVALID_RECORD,
                    f"the reply topic {topic!r} of a cancel does not exist; create it first",
                )
        return None


class _DividedProduce:
    """A request of which something waits. Owned by the event loop."""

    def __init__(
        self, request: Request, services: "Services", divided: _Sorted, reply: Reply
    ) -> None:
        self._request = request
        self._services = services
        self._waiting = divided.waiting
        self._results = dict(divided.refused)  # by position
        self._missing = len(divided.plain) + len(divided.waiting)  # results
        self._reply = reply
        self._memory: Releasable | None = None
        self._guards: dict[TopicPartition, TransactionGuard] = {}  # of transactional batches
        self._produced: ProduceRequest

    def start(
        self,
        produced: ProduceRequest,
        plain: list[tuple[int, tuple[TopicPartition, memoryview]]],
    ) -> None:
        self._produced = produced.without_records()
        if plain:
            self._append(
                [position for position, _ in plain],
                [batch for _, batch in plain],
                AppendOrigin.CLIENT,
            )
        self._request.message = None  # the receive buffer is reused once the handler returns
        self._memory = self._request.in_flight.try_keep(
            sum(waiting.division.header.size for waiting in self._waiting)
        )
        if self._memory is None:
            self._end({waiting.position: _NO_MEMORY for waiting in self._waiting})
        else:
            self._guard_transactions()
            self._services.run(self._run())

    def _guard_transactions(self) -> None:
        """They are open now: their batches have just been verified."""
        for _, tp, division in self._waiting:
            partition = self._services.replicas.find(tp)
            if division.header.is_transactional and partition is not None and partition.leadership:
                header = division.header
                self._guards[tp] = TransactionGuard(
                    partition, header.producer_id, header.producer_epoch
                )

    async def _run(self) -> None:
        """An unexpected error closes this connection, as it does without an await."""
        try:
            await self._defer_and_append()
        except Exception:
            self._request.in_flight.fail("Produce with delayed messages")
        finally:
            for guard in self._guards.values():
                guard.close()
            if self._memory is not None:
                self._memory.release()

    async def _defer_and_append(self) -> None:
        refused: Refusals = {}
        kept: list[tuple[_DividedPartition, bytearray]] = []
        deferred = [(waiting, await self._defer(waiting)) for waiting in self._waiting]
        for waiting, result in deferred:
            refusal = result or self._find_ended(waiting)
            if refusal is not None:
                refused[waiting.position] = refusal
                continue
            batch = waiting.division.what_is_appended(self._services.wall_ms())
            if batch is None:
                refused[waiting.position] = _ALL_WAITS
            else:
                kept.append((waiting, batch))
        if refused:
            self._end(refused)
        if kept:
            self._append(
                [waiting.position for waiting, _ in kept],
                [(waiting.tp, memoryview(batch)) for waiting, batch in kept],
                AppendOrigin.DEFERRED,
                hides_offsets=frozenset(
                    waiting.position for waiting, _ in kept if waiting.division.all_waits
                ),
            )

    def _find_ended(self, waiting: _DividedPartition) -> PartitionAppended | None:
        """Its transaction may have ended meanwhile; nothing is awaited from here on."""
        guard = self._guards.get(waiting.tp)
        code = ErrorCode.NONE if guard is None else guard.find_refusal()
        return None if code is ErrorCode.NONE else self._refuse_reply(DeferReply(code))

    # -- deferring -------------------------------------------------------------------------

    async def _defer(self, waiting: _DividedPartition) -> PartitionAppended | None:
        """None: all that waits is durable, and every cancel is answered."""
        division = waiting.division
        if division.is_duplicate:
            return None
        target = Target(division.topic_id, waiting.tp.partition)
        transaction = self._find_transaction(division)
        for run in _split(division, target):
            checked = check_again(self._services.replicas.find(waiting.tp), division.header)
            if checked is not False:
                return None if checked is True else checked
            if run.messages:
                reply = await self._services.deferred.defer(
                    run.messages,
                    _sent_by(division, target, run.last_index),
                    transaction,
                    timeout_ms=self._timeout_ms,
                )
                if reply.code is not ErrorCode.NONE:
                    return self._refuse_reply(reply)
            for first in range(0, len(run.cancels), CANCELS_AT_ONCE):
                cancels = run.cancels[first : first + CANCELS_AT_ONCE]
                code = await self._cancel(target, waiting.tp.topic, cancels)
                if code is not ErrorCode.NONE:
                    return self._refuse_reply(DeferReply(code))
        return None

    async def _cancel(
        self, target: Target, topic: str, cancels: Sequence[CancelRequest]
    ) -> ErrorCode:
        """Together: one after the other, those of a large batch would take longer than its producer
        waits, and each repeat would begin anew."""
        replies = await self._services.deferred.cancel(
            [DelayKey(target.topic_id, cancel.delay_id) for cancel in cancels],
            timeout_ms=self._timeout_ms,
        )
        if isinstance(replies, Failed):
            return replies.code
        answers: dict[Target, list[Record]] = {}
        for cancel in cancels:
            if cancel.reply_topic is None:
                continue
            state = self._services.metadata.find_topic(cancel.reply_topic)
            if state is None:
                return ErrorCode.LEADER_NOT_AVAILABLE  # deleted meanwhile: the repeat is told
            partition = partition_for(cancel.delay_id, len(state.partitions))
            records = answers.setdefault(Target(state.topic_id, partition), [])
            word = replies[DelayKey(target.topic_id, cancel.delay_id)].value
            records.append(self._answer(cancel.delay_id, topic, word))
        return await self._append_answers(answers)

    def _find_transaction(self, division: Division) -> InTransaction | None:
        if not division.header.is_transactional:
            return None
        transactional_id = self._produced.transactional_id
        assert transactional_id is not None  # else authorization has failed before
        return InTransaction(transactional_id, self._request.version >= FIRST_WITH_IMPLICIT_ADD)

    def _refuse_reply(self, reply: DeferReply) -> PartitionAppended:
        code = reply.code
        if code is ErrorCode.TRANSACTION_ABORTABLE and self._request.version < FIRST_WITH_ABORTABLE:
            return _refuse(ErrorCode.INVALID_TXN_STATE, reply.message or code.message)
        return _refuse_reply(reply)

    def _answer(self, delay_id: str, topic: str, word: str) -> Record:
        return Record(
            offset=0,
            timestamp_ms=self._services.wall_ms(),
            key=delay_id.encode(),
            value=word.encode(),
            headers=((DELAY_CANCEL, delay_id.encode()), ("penstock-topic", topic.encode())),
        )

    async def _append_answers(self, answers: Mapping[Target, Sequence[Record]]) -> ErrorCode:
        codes = await asyncio.gather(
            *(self._append_to(target, records) for target, records in answers.items())
        )
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    async def _append_to(self, target: Target, records: Sequence[Record]) -> ErrorCode:
        """In halves, if its topic takes smaller batches only: the cancels are done by now, and a
        repeat would be refused in the same way."""
        batch = build_batch([record._replace(offset=index) for index, record in enumerate(records)])
        code = await self._services.deferred.append(target, batch, timeout_ms=self._timeout_ms)
        half = len(records) // 2
        if not half or code not in _TOO_LARGE:
            return code
        for some in (records[:half], records[half:]):
            code = await self._append_to(target, some)
            if code is not ErrorCode.NONE:
                break
        return code

    @property
    def _timeout_ms(self) -> int:
        return max(self._produced.timeout_ms, MIN_TIMEOUT_MS)

    # -- appending and answering -----------------------------------------------------------

    def _append(
        self,
        positions: list[int],
        batches: Sequence[tuple[TopicPartition, memoryview]],
        origin: AppendOrigin,
        hides_offsets: frozenset[int] = frozenset(),
    ) -> None:
        def done(results: list[PartitionAppended]) -> None:
            self._end(
                {
                    position: result._replace(base_offset=_UNKNOWN)
                    if position in hides_offsets
                    else result
                    for position, result in zip(positions, results, strict=True)
                }
            )

        in_flight = self._request.in_flight
        is_last = origin is AppendOrigin.DEFERRED
        watched = self._services.replicas.append(
            batches,
            acks=self._produced.acks,
            timeout_ms=max(self._produced.timeout_ms, 0),
            origin=origin,
            done=done,
        )
        if watched is not None and watched.ending is None:
            purgatory = self._services.replicas.produce_purgatory
            in_flight.on_close(partial(_cancel_operation, purgatory, watched))
        if is_last and not in_flight.is_answered and not in_flight.is_closed:
            in_flight.let_next_start()

    def _end(self, results: Refusals) -> None:
        self._results.update(results)
        self._missing -= len(results)
        if not self._missing:
            ordered = [self._results[position] for position in sorted(self._results)]
            self._reply(self._produced, ordered)


def _cancel_operation(purgatory: Purgatory[TopicPartition], watched: Watched) -> None:
    purgatory.cancel(watched)


def _split(division: Division, target: Target) -> Iterator[_Run]:
    """The records that ask, in as few runs as their order allows: nearly always one."""
    messages: list[DeferredMessage] = []
    cancels: list[CancelRequest] = []
    ids: tuple[set[str], set[str]] = set(), set()  # of the messages, of the cancels
    last_index = 0
    for record, wanted in division.batch.asking:
        is_cancel = isinstance(wanted, CancelRequest)
        if wanted.delay_id is not None:
            if wanted.delay_id in ids[not is_cancel]:
                yield _Run(messages, cancels, last_index)
                messages, cancels, ids = [], [], (set(), set())
            ids[is_cancel].add(wanted.delay_id)
        last_index = record.offset
        if isinstance(wanted, DelayRequest):
            messages.append(
                _message(record, wanted, target, is_transactional=division.header.is_transactional)
            )
        else:
            cancels.append(wanted)
    yield _Run(messages, cancels, last_index)


def _message(
    record: Record, wanted: DelayRequest, target: Target, *, is_transactional: bool
) -> DeferredMessage:
    is_counted_from_commit = is_transactional and wanted.delay_ms is not None
    return DeferredMessage(
        due_ms=0 if is_counted_from_commit else wanted.due_ms,
        target=target,
        delay_id=wanted.delay_id,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=without_delay_headers(record.headers),
        commit_delay_ms=(wanted.delay_ms or 0) if is_transactional else None,
    )


def _sent_by(division: Division, target: Target, last_index: int) -> SentBy | None:
    header = division.header
    if not header.has_producer:
        return None
    first = header.base_sequence
    sequences = SequenceRange(first, (first + last_index) & MAX_SEQUENCE)
    return SentBy(target, header.producer_id, header.producer_epoch, sequences)


def _refuse_reply(reply: DeferReply) -> PartitionAppended:
    if reply.code in _TRANSIENT:
        return _refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the messages that wait could not be stored: {reply.code.name}, "
            f"{reply.message or reply.code.message}; retry",
        )
    return _refuse(reply.code, reply.message or reply.code.message)


def _refuse(code: ErrorCode, message: str | None) -> PartitionAppended:
    return PartitionAppended(code, _UNKNOWN, NO_TIMESTAMP, _UNKNOWN, message)


_ALL_WAITS = _refuse(ErrorCode.NONE, None)  # nothing is appended now
_NO_MEMORY = _refuse(
    ErrorCode.NOT_ENOUGH_REPLICAS, "too many batches wait for messages to be stored; retry"
)
_CANCEL_IN_TRANSACTION = (
    "a record of a transaction cannot cancel a delayed message, because it is answered before "
    "the commit; send it outside of the transaction"
)
