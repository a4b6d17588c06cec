"""A transaction of raw batches against a scripted cluster: which requests go to which broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.unit.client.conftest import Run
from tests.unit.client.scripted_broker import (
    ZERO,
    Answer,
    Cluster,
    HangUp,
    ReceivedRequest,
    ScriptedBroker,
    produced,
)

from penstock.client.cluster import ClusterClient
from penstock.client.errors import RefusedByBroker, TransactionAbortable, TransactionOver
from penstock.client.raw_transaction import RawTransaction
from penstock.client.transaction_values import PreparedState, TransactionalProducerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import is_crc_valid, read_header
from penstock.protocol.records import Record, build_batch

FIND, INIT, PRODUCE = ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE
ADD, END, LIST = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN, ApiKey.LIST_TRANSACTIONS
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WHO = TransactionalProducerId("x", 7, 3)


def some_batch(count: int) -> bytearray:
    records = [
        Record(offset=number, timestamp_ms=1, key=None, value=b"v") for number in range(count)
    ]
    return build_batch(records)


class TransactionHarness:
    """Two scripted brokers: the first is the coordinator, the second the leader."""

    def __init__(self, coordinator: ScriptedBroker, leader: ScriptedBroker) -> None:
        self.coordinator, self.leader = coordinator, leader
        # Error code of every coordinator response but InitProducerId's
        self.code = ErrorCode.NONE
        self.ongoing = (-1, -1)
        Cluster(coordinator, leader).leaders = {"t": [leader.id, leader.id]}
        for broker in (coordinator, leader):
            broker.served |= {FIND: (0, 4), INIT: (0, 6), ADD: (0, 5), END: (0, 5), LIST: (0, 1)}
            broker.handlers |= {FIND: self._find, PRODUCE: produced}
        coordinator.handlers |= {INIT: self._init, ADD: self._add, END: self._end}

    def _find(self, request: ReceivedRequest) -> Answer:
        assert request.message.key_type == 1
        address = self.coordinator.address
        location = {"node_id": self.coordinator.id, "host": address.host, "port": address.port}
        coordinator = {"key": "x", "error_code": 0, "error_message": None, **location}
        return {"throttle_time": ZERO, "coordinators": [coordinator]}

    def _init(self, request: ReceivedRequest) -> Answer:
        ongoing_id, ongoing_epoch = self.ongoing
        return {
            "throttle_time": ZERO,
            "error_code": 0,
            "producer_id": 7,
            "producer_epoch": 3,
            "ongoing_txn_producer_id": ongoing_id,
            "ongoing_txn_producer_epoch": ongoing_epoch,
        }

    def _add(self, request: ReceivedRequest) -> Answer:
        results = [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": partition, "partition_error_code": self.code}
                    for partition in topic.partitions
                ],
            }
            for topic in request.message.v3_and_below_topics
        ]
        return {"throttle_time": ZERO, "results_by_topic_v3_and_below": results}

    def _end(self, request: ReceivedRequest) -> Answer:
        return {"throttle_time": ZERO, "error_code": self.code}

    def sent(self, key: ApiKey) -> list[ReceivedRequest]:
        return [
            request
            for request in (*self.coordinator.requests, *self.leader.requests)
            if request[0] is key
        ]


@asynccontextmanager
async def coordinator_and_leader() -> AsyncIterator[tuple[TransactionHarness, ClusterClient]]:
    async with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
        made = TransactionHarness(first, second)
        async with ClusterClient(str(first.address), retry_backoff_ms=1) as client:
            yield made, client


def test_batches_get_producer_fields_and_partitions_are_added_once(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            transaction = await RawTransaction.begin(client, "x")
            await transaction.add([T0, T1])
            await transaction.write(T0, some_batch(3))
            await transaction.write(T0, bytes(some_batch(2)))
            await transaction.write(T1, some_batch(1))
            await transaction.commit()
            assert len(made.sent(ADD)) == 1
            batches = [
                request.message.topic_data[0].partition_data[0].records
                for request in made.sent(PRODUCE)
            ]
            headers = [read_header(batch) for batch in batches]
            assert [header.base_sequence for header in headers] == [0, 3, 0]
            assert {(header.producer_id, header.producer_epoch) for header in headers} == {(7, 3)}
            assert all(header.is_transactional for header in headers)
            assert all(is_crc_valid(batch, 0, len(batch)) for batch in batches)
            assert {request.message.transactional_id for request in made.sent(PRODUCE)} == {"x"}
            (ended,) = made.sent(END)
            assert (ended.message.producer_id, ended.message.committed) == (7, True)
            assert ended.version < 5

    run(scenario)


def test_a_partition_is_added_before_its_first_batch(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            transaction = await RawTransaction.begin(client, "x")
            await asyncio.gather(*(transaction.write(tp, some_batch(1)) for tp in (T0, T1, T0, T1)))
            added = [
                request.message.v3_and_below_topics[0].partitions for request in made.sent(ADD)
            ]
            assert sorted(added) == [(0,), (1,)]
            assert len(made.sent(PRODUCE)) == 4

    run(scenario)


def test_after_a_failed_write_a_transaction_can_only_be_aborted(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            transaction = await RawTransaction.begin(client, "x", two_phase=True)
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH
            made.leader.handlers[PRODUCE] = lambda request: produced(request, code=fenced)
            with pytest.raises(RefusedByBroker, match="INVALID_PRODUCER_EPOCH"):
                await transaction.write(T0, some_batch(1))
            made.leader.handlers[PRODUCE] = produced
            for step in (transaction.commit, transaction.prepare):
                with pytest.raises(TransactionAbortable, match="only be aborted"):
                    await step()
            with pytest.raises(TransactionAbortable):
                await transaction.write(T0, some_batch(1))
            await transaction.abort()
            (ended,) = made.sent(END)
            assert not ended.message.committed

    run(scenario)


def test_end_without_begin_sends_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            await (await RawTransaction.begin(client, "x")).commit()
            await (await RawTransaction.begin(client, "x")).abort()
            empty = await RawTransaction.begin(client, "x", two_phase=True)
            assert await empty.prepare() is None
            assert made.sent(END) == []

    run(scenario)


def test_another_client_can_end_a_prepared_transaction(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            transaction = await RawTransaction.begin(client, "x", two_phase=True)
            await transaction.write(T0, some_batch(1))
            state = await transaction.prepare()
            assert state is not None
            assert state == PreparedState("x", 7, 3)
            assert made.sent(END) == []
            (request,) = made.sent(INIT)
            assert (request.version, request.message.enable2_pc) == (6, True)
            with pytest.raises(TransactionOver):
                await transaction.commit()
        async with coordinator_and_leader() as (made, client):
            for commit in (True, True, False):
                await client.transactions.end(PreparedState(*state), commit=commit)
            ends = [
                (request.message.producer_epoch, request.message.committed)
                for request in made.sent(END)
            ]
            assert ends == [(3, True), (3, True), (3, False)]

    run(scenario)


def test_only_two_phase_transactions_can_be_prepared(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (_, client):
            transaction = await RawTransaction.begin(client, "x")
            with pytest.raises(ValueError, match="two_phase=True"):
                await transaction.prepare()

    run(scenario)


def test_a_prepared_transaction_of_a_previous_incarnation_can_be_kept(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            made.ongoing = (7, 2)
            producer = await client.transactions.init_producer(
                "x", two_phase=True, keep_prepared=True
            )
            assert producer == (WHO, PreparedState("x", 7, 2))
            made.ongoing = (-1, -1)
            producer = await client.transactions.init_producer(
                "x", two_phase=True, keep_prepared=True
            )
            assert producer.prepared is None

    run(scenario)


def after_failures(
    count: int, fail: Callable[[], Answer], then: Callable[[ReceivedRequest], Answer]
) -> Callable[[ReceivedRequest], Answer]:
    left = iter(range(count))
    return lambda request: then(request) if next(left, None) is None else fail()


def test_a_coordinator_that_moved_or_disconnected_is_looked_up_again(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            ended = {"throttle_time": ZERO, "error_code": ErrorCode.NOT_COORDINATOR}

            def hang_up() -> Answer:
                raise HangUp

            made.coordinator.handlers[END] = after_failures(1, lambda: ended, made._end)
            await client.transactions.end(WHO, commit=True)
            made.coordinator.handlers[END] = after_failures(1, hang_up, made._end)
            await client.transactions.end(WHO, commit=True)
            assert len(made.sent(FIND)) == 3

    run(scenario)


def test_the_failing_partition_is_named(run: Run) -> None:
    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            codes = {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            results = [
                {"partition_index": number, "partition_error_code": code}
                for number, code in codes.items()
            ]
            made.coordinator.handlers[ADD] = lambda request: {
                "throttle_time": ZERO,
                "results_by_topic_v3_and_below": [{"name": "t", "results_by_partition": results}],
            }
            with pytest.raises(RefusedByBroker, match=r"t-1.*TOPIC_AUTHORIZATION_FAILED"):
                await client.transactions.add_partitions(WHO, [T0, T1])

    run(scenario)


def test_transactions_are_listed_after_a_broker_failure(run: Run) -> None:
    """The client still knows the failed broker; the other one lists its transactions."""

    def listed(request: ReceivedRequest) -> Answer:
        state = {"transactional_id": "x", "producer_id": 7, "transaction_state": "Ongoing"}
        return {
            "throttle_time": ZERO,
            "error_code": 0,
            "unknown_state_filters": (),
            "transaction_states": [state],
        }

    async def scenario() -> None:
        async with coordinator_and_leader() as (made, client):
            for broker in (made.coordinator, made.leader):
                broker.handlers[LIST] = listed
            assert len(await client.transactions.list_transactions()) == 2
            await made.leader.stop()
            (transaction,) = await client.transactions.list_transactions()
            assert (transaction.transactional_id, transaction.coordinator) == (
                "x",
                made.coordinator.id,
            )

    run(scenario)
