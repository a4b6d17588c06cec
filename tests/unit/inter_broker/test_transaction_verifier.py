"""Leaders verify with the coordinator that their partitions belong to a transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.unit.apis.fake_transaction_coordinator import FakeTransactionCoordinator
from tests.unit.client.scripted_broker import ZERO, Answer, HangUp, ReceivedRequest
from tests.unit.inter_broker.other_brokers import (
    GONE,
    ME,
    OTHER,
    TwoBrokers,
    two_brokers,
)

from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.transaction_verifier import TransactionVerifier
from penstock.model.cluster import TRANSACTIONS_TOPIC, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.purgatory.loop_timers import LoopTimers

KEY = ApiKey.ADD_PARTITIONS_TO_TXN
NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Harness:
    """The coordinator is this broker or the other one."""

    def __init__(self, brokers: TwoBrokers, timers: LoopTimers, coordinator: BrokerId) -> None:
        self.other = brokers.other
        self.other.served[KEY] = (0, 5)
        self.own = FakeTransactionCoordinator()
        self.config = InterBrokerConfig(
            add_partitions_retry_backoff_ms=1, add_partitions_retry_backoff_max_ms=3
        )
        brokers.lead(TRANSACTIONS_TOPIC, coordinator)
        self.verifier = TransactionVerifier(
            ME,
            metadata=brokers.metadata,
            get_coordinator=lambda: self.own,
            brokers=brokers.connections,
            config=lambda: self.config,
            timers=timers,
            run=brokers.run,
        )

    async def verify(
        self, transactional_id: str = "t", *, adds: bool = False
    ) -> Mapping[TopicPartition, ErrorCode]:
        verified: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = (
            asyncio.get_running_loop().create_future()
        )
        self.verifier.verify(transactional_id, 7, 3, [P0, P1], adds=adds, done=verified.set_result)
        return await verified


def run_scenario(scenario: Callable[[Harness], Awaitable[None]], coordinator: BrokerId) -> None:
    async def run() -> None:
        async with two_brokers() as brokers:
            timers = LoopTimers()
            brokers.run(timers.run())
            await scenario(Harness(brokers, timers, coordinator))
            timers.stop()

    asyncio.run(run())


def respond_with(*codes: ErrorCode) -> Callable[[ReceivedRequest], Answer]:
    """Respond with one code per partition, for every transaction of the request."""

    def answer(request: ReceivedRequest) -> dict[str, Any]:
        return {
            "throttle_time": ZERO,
            "error_code": NONE,
            "results_by_transaction": [
                {
                    "transactional_id": transaction.transactional_id,
                    "topic_results": [
                        {
                            "name": "orders",
                            "results_by_partition": [
                                {"partition_index": partition, "partition_error_code": code}
                                for partition, code in enumerate(codes)
                            ],
                        }
                    ],
                }
                for transaction in request.message.transactions
            ],
        }

    return answer


def test_a_coordinator_on_this_broker_is_called_in_process() -> None:
    async def scenario(harness: Harness) -> None:
        harness.own.unverified = {P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await harness.verify() == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await harness.verify(adds=True) == {P0: NONE, P1: NONE}
        producer = ("t", 7, 3, (P0, P1))
        assert harness.own.requests == [("verify", *producer), ("add", *producer, 5)]
        assert harness.other.requests == []

    run_scenario(scenario, ME)


@pytest.mark.parametrize("adds", [True, False])
def test_a_coordinator_elsewhere_gets_add_partitions_to_txn_v5(adds: bool) -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = respond_with(NONE, ErrorCode.TRANSACTION_ABORTABLE)
        codes = await harness.verify(adds=adds)
        assert codes == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        (request,) = (request for request in harness.other.requests if request.api_key is KEY)
        (sent,) = request.message.transactions
        assert (request.version, sent.verify_only) == (5, not adds)
        assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("t", 7, 3)

    run_scenario(scenario, OTHER)


@pytest.mark.parametrize("coordinator", [ME, OTHER])
def test_producer_fenced_becomes_invalid_producer_epoch(coordinator: BrokerId) -> None:
    async def scenario(harness: Harness) -> None:
        fenced = ErrorCode.PRODUCER_FENCED
        harness.own.code = fenced
        harness.other.handlers[KEY] = respond_with(fenced, fenced)
        expected = ErrorCode.INVALID_PRODUCER_EPOCH
        assert await harness.verify() == {P0: expected, P1: expected}

    run_scenario(scenario, coordinator)


def test_adding_retries_while_the_previous_transaction_ends() -> None:
    async def scenario(harness: Harness) -> None:
        busy = respond_with(BUSY, BUSY)
        harness.other.handlers[KEY] = lambda request: (
            busy(request) if harness.other.count(KEY) < 3 else respond_with(NONE, NONE)(request)
        )
        assert await harness.verify(adds=True) == {P0: NONE, P1: NONE}
        harness.other.handlers[KEY] = busy
        requests_before = harness.other.count(KEY)
        assert await harness.verify(adds=True) == {P0: BUSY, P1: BUSY}
        assert harness.other.count(KEY) - requests_before == 4  # with three backoffs of 1 ms
        assert await harness.verify(adds=False) == {P0: BUSY, P1: BUSY}
        assert harness.other.count(KEY) - requests_before == 5

    run_scenario(scenario, OTHER)


def test_an_unknown_coordinator_and_an_unreachable_one_give_different_codes() -> None:
    async def not_there(harness: Harness) -> None:
        gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await harness.verify() == {P0: gone, P1: gone}

    async def silent(harness: Harness) -> None:
        def hang_up(request: ReceivedRequest) -> Answer:
            raise HangUp

        harness.other.handlers[KEY] = hang_up
        lost = ErrorCode.NETWORK_EXCEPTION
        assert await harness.verify() == {P0: lost, P1: lost}

    run_scenario(not_there, GONE)
    run_scenario(silent, OTHER)


def test_a_broker_without_cluster_action_verifies_nothing() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = lambda request: {
            "throttle_time": ZERO,
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "results_by_transaction": [],
        }
        refused = ErrorCode.INVALID_TXN_STATE
        assert await harness.verify() == {P0: refused, P1: refused}

    run_scenario(scenario, OTHER)


def test_a_partition_missing_in_the_response_is_not_verified() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = respond_with(NONE)
        assert await harness.verify() == {P0: NONE, P1: ErrorCode.UNKNOWN_SERVER_ERROR}

    run_scenario(scenario, OTHER)
