"""What a leader hears when it asks whether its partitions belong to a transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.unit.apis.transactions_twin import TransactionsTwin
from tests.unit.client.scripted_broker import ZERO, Answer, Asked, HangUp
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
    """The coordinator is on this broker, or on the other one."""

    def __init__(self, around: TwoBrokers, timers: LoopTimers, coordinator: BrokerId) -> None:
        self.other = around.other
        self.other.served[KEY] = (0, 5)
        self.own = TransactionsTwin()
        self.config = InterBrokerConfig(
            add_partitions_retry_backoff_ms=1, add_partitions_retry_backoff_max_ms=3
        )
        around.lead(TRANSACTIONS_TOPIC, coordinator)
        self.verifier = TransactionVerifier(
            ME,
            metadata=around.metadata,
            get_coordinator=lambda: self.own,
            brokers=around.connections,
            config=lambda: self.config,
            timers=timers,
            run=around.run,
        )

    async def verify(
        self, transactional_id: str = "t", *, adds: bool = False
    ) -> Mapping[TopicPartition, ErrorCode]:
        told: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = (
            asyncio.get_running_loop().create_future()
        )
        self.verifier.verify(transactional_id, 7, 3, [P0, P1], adds=adds, done=told.set_result)
        return await told


def run_scenario(scenario: Callable[[Harness], Awaitable[None]], coordinator: BrokerId) -> None:
    async def run() -> None:
        async with two_brokers() as around:
            timers = LoopTimers()
            around.run(timers.run())
            await scenario(Harness(around, timers, coordinator))
            timers.stop()

    asyncio.run(run())


def answer_with(*codes: ErrorCode) -> Callable[[Asked], Answer]:
    """Of each partition in turn, for every transaction that is asked for."""

    def answer(asked: Asked) -> dict[str, Any]:
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
                                {"partition_index": number, "partition_error_code": code}
                                for number, code in enumerate(codes)
                            ],
                        }
                    ],
                }
                for transaction in asked.message.transactions
            ],
        }

    return answer


def test_a_coordinator_on_this_broker_is_asked_without_the_network() -> None:
    async def scenario(harness: Harness) -> None:
        harness.own.unverified = {P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await harness.verify() == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await harness.verify(adds=True) == {P0: NONE, P1: NONE}
        who = ("t", 7, 3, (P0, P1))
        assert harness.own.asked == [("verify", *who), ("add", *who, 5)]
        assert harness.other.asked == []

    run_scenario(scenario, ME)


@pytest.mark.parametrize("adds", [True, False])
def test_a_coordinator_elsewhere_is_asked_in_the_brokers_version(adds: bool) -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = answer_with(NONE, ErrorCode.TRANSACTION_ABORTABLE)
        codes = await harness.verify(adds=adds)
        assert codes == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        (asked,) = (each for each in harness.other.asked if each.api_key is KEY)
        (sent,) = asked.message.transactions
        assert (asked.version, sent.verify_only) == (5, not adds)
        assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("t", 7, 3)

    run_scenario(scenario, OTHER)


@pytest.mark.parametrize("coordinator", [ME, OTHER])
def test_a_newer_producer_is_told_of_as_partitions_do(coordinator: BrokerId) -> None:
    async def scenario(harness: Harness) -> None:
        fenced = ErrorCode.PRODUCER_FENCED
        harness.own.code = fenced
        harness.other.handlers[KEY] = answer_with(fenced, fenced)
        told = ErrorCode.INVALID_PRODUCER_EPOCH
        assert await harness.verify() == {P0: told, P1: told}

    run_scenario(scenario, coordinator)


def test_adding_waits_a_little_for_the_transaction_before() -> None:
    async def scenario(harness: Harness) -> None:
        busy = answer_with(BUSY, BUSY)
        harness.other.handlers[KEY] = lambda asked: (
            busy(asked) if harness.other.count(KEY) < 3 else answer_with(NONE, NONE)(asked)
        )
        assert await harness.verify(adds=True) == {P0: NONE, P1: NONE}
        harness.other.handlers[KEY] = busy
        asked_before = harness.other.count(KEY)
        assert await harness.verify(adds=True) == {P0: BUSY, P1: BUSY}
        assert harness.other.count(KEY) - asked_before == 4  # and three rests of 1 ms
        assert await harness.verify(adds=False) == {P0: BUSY, P1: BUSY}
        assert harness.other.count(KEY) - asked_before == 5

    run_scenario(scenario, OTHER)


def test_a_coordinator_that_is_not_there_or_does_not_answer_is_told_apart() -> None:
    async def not_there(harness: Harness) -> None:
        gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await harness.verify() == {P0: gone, P1: gone}

    async def silent(harness: Harness) -> None:
        def hang_up(asked: Asked) -> Answer:
            raise HangUp

        harness.other.handlers[KEY] = hang_up
        lost = ErrorCode.NETWORK_EXCEPTION
        assert await harness.verify() == {P0: lost, P1: lost}

    run_scenario(not_there, GONE)
    run_scenario(silent, OTHER)


def test_a_broker_that_is_not_let_in_verifies_nothing() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = lambda asked: {
            "throttle_time": ZERO,
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "results_by_transaction": [],
        }
        refused = ErrorCode.INVALID_TXN_STATE
        assert await harness.verify() == {P0: refused, P1: refused}

    run_scenario(scenario, OTHER)


def test_what_an_answer_leaves_out_is_not_verified() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = answer_with(NONE)
        assert await harness.verify() == {P0: NONE, P1: ErrorCode.UNKNOWN_SERVER_ERROR}

    run_scenario(scenario, OTHER)
