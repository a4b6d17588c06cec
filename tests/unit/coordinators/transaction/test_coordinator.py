"""The transaction coordinator and its shards: routing, failing writes, reloads, queries."""

import asyncio
from typing import NoReturn

import pytest
from tests.unit.coordinators.group.coordinator_harness import TableLog
from tests.unit.coordinators.transaction.harness import (
    NONE,
    T0,
    T1,
    TX,
    TransactionCoordinatorHarness,
    replay_log,
    run_scenario,
)

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import (
    ListTransactions,
    ProducerIdAndEpoch,
    TransactionSummary,
)
from penstock.model.errors import ErrorCode

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_its_config_comes_from_the_brokers_settings() -> None:
    assert TransactionConfig.from_broker(resolve_broker()) == TransactionConfig()
    given = {
        "transaction.max.timeout.ms": "5000",
        "transaction.two.phase.commit.enable": "false",
        "transaction.state.log.num.partitions": "7",
    }
    config = TransactionConfig.from_broker(
        resolve_broker(RawConfig.from_mapping(given, where="here"))
    )
    assert (config.max_timeout_ms, config.two_phase_enabled, config.topic_partitions) == (
        5000,
        False,
        7,
    )


def test_only_the_leader_of_an_ids_partition_serves_it() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        for number in range(20):
            name = f"t{number}"
            is_here = partition_for(name, 4) != 2
            code = (await harness.init(name)).code
            assert code is (NONE if is_here else ErrorCode.NOT_COORDINATOR)
            assert harness.coordinator.describe(name).code is code

    log = TableLog(partitions=4)
    log.lose(2)
    run_scenario(scenario, TransactionCoordinatorHarness(log))


def test_without_its_topic_there_is_no_coordinator() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.log.exists = False
        assert harness.coordinator.partition_of(TX) == partition_for(TX, 50)
        assert (await harness.init()).code is AWAY
        assert await harness.coordinator.ensure_topic() is NONE
        assert (await harness.init()).code is NONE

    run_scenario(scenario)


def test_requests_during_loading_get_coordinator_load_in_progress() -> None:
    first = TransactionCoordinatorHarness()

    async def begin(harness: TransactionCoordinatorHarness) -> None:
        await harness.producer()

    run_scenario(begin, first)
    first.log.lead()

    async def scenario() -> None:
        harness = TransactionCoordinatorHarness(first.log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 1)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (await harness.init()).code is code
            assert harness.coordinator.describe(TX).code is code
            assert harness.coordinator.list(ListTransactions()).code is code
            await harness.loaded()
            assert (await harness.init()).code is NONE
            harness.coordinator.close()
            assert harness.coordinator.list(ListTransactions()).code is AWAY

    asyncio.run(scenario())


def test_a_refused_write_changes_nothing() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await harness.add(who, T0) is AWAY
        assert (await harness.init()).code is AWAY
        assert harness.transaction().state is State.EMPTY
        harness.log.refusal = None
        assert await harness.add(who, T0) is NONE
        harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await harness.end(who)).code is AWAY
        assert harness.transaction().state is State.ONGOING
        harness.log.refusal = None
        assert (await harness.end(who)).code is NONE

    run_scenario(scenario)


def test_waiting_requests_get_not_coordinator_when_leadership_is_lost() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        harness.log.is_held = True
        asking = asyncio.create_task(harness.init())
        await harness.turns()
        harness.coordinator.drop_partition(0)
        assert (await asking).code is ErrorCode.NOT_COORDINATOR

    run_scenario(scenario)


def test_an_unexpected_error_reloads_the_state_from_the_log() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.add(who, T0)
        before = harness.shard.state.snapshot()

        def fail(*_: object) -> NoReturn:
            raise ZeroDivisionError

        reply = await harness.shard.run(fail)
        assert reply == (ErrorCode.UNKNOWN_SERVER_ERROR,)
        assert harness.reports[-1].startswith("unexpected error in transaction coordinator shard")
        harness.clock.advance_ms(100)
        await harness.loaded()
        assert harness.shard.state.snapshot() == before
        assert (await harness.end(who)).code is NONE

    run_scenario(scenario)


def test_a_restarted_coordinator_loads_what_was_written() -> None:
    first = TransactionCoordinatorHarness()

    async def begin(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer("a")
        await harness.add(who, T0, T1, name="a")
        who = await harness.producer("b")
        await harness.add(who, T0, name="b")
        await harness.end(who, name="b")
        await harness.turns()

    run_scenario(begin, first)
    first.log.lead()

    async def go_on(harness: TransactionCoordinatorHarness) -> None:
        transaction = harness.shard.state.transactions
        assert {name: value.state for name, value in transaction.items()} == {
            "a": State.ONGOING,
            "b": State.COMPLETE_COMMIT,
        }
        loads = harness.coordinator.statistics().loads
        assert (loads.loads, loads.average_s) == (1, loads.longest_s)
        assert (await harness.end(ProducerIdAndEpoch(1000, 0), name="a")).code is NONE
        await harness.turns()
        assert replay_log(harness.log).snapshot() == harness.shard.state.snapshot()

    run_scenario(go_on, TransactionCoordinatorHarness(first.log, partitions=first.partitions))


def test_damaged_records_are_reported_and_skipped() -> None:
    harness = TransactionCoordinatorHarness()

    async def begin(harness: TransactionCoordinatorHarness) -> None:
        for name in "abc":
            await harness.producer(name)

    run_scenario(begin, harness)
    harness.log.lead()
    data = bytearray(harness.log.raw())
    data[len(data) // 2] ^= 1  # in the second of three equal batches

    async def damaged(partition: int, start: int, max_bytes: int) -> object:
        return chunk._replace(batches=bytes(data))

    chunk = asyncio.run(harness.log.read(0, 0, 10_000))
    other = TransactionCoordinatorHarness(harness.log)
    other.log.read = damaged  # type: ignore[method-assign,assignment]

    async def go_on(harness: TransactionCoordinatorHarness) -> None:
        assert set(harness.shard.state.transactions) == {"a", "c"}
        assert "wrong CRC" in harness.reports[0]

    run_scenario(go_on, other)


# -- queries -------------------------------------------------------------------------------


def test_an_ongoing_transaction_is_described() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer(timeout_ms=1234)
        await harness.add(who, T1, T0)
        described = harness.coordinator.describe(TX)
        assert (described.code, described.state, described.timeout_ms) == (NONE, "Ongoing", 1234)
        assert (described.producer_id, described.producer_epoch) == who
        assert described.partitions == (T0, T1)
        assert described.started_ms == harness.clock.wall_ms()
        assert not described.is_two_phase
        missing = harness.coordinator.describe("nobody")
        assert missing.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (ListTransactions(), "abc"),
        (ListTransactions(states=frozenset({"Ongoing"})), "bc"),
        (ListTransactions(states=frozenset({"Empty", "Ongoing"})), "abc"),
        (ListTransactions(states=frozenset({"Strange"})), ""),
        (ListTransactions(producer_ids=frozenset({1000, 1002})), "ac"),
        (ListTransactions(min_duration_ms=0), "b"),
        (ListTransactions(min_duration_ms=10), ""),
    ],
)
def test_transactions_are_listed_by_filter(filters: ListTransactions, names: str) -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = {name: await harness.producer(name) for name in "abc"}
        await harness.add(who["b"], T0, name="b")
        harness.clock.advance_ms(10)
        await harness.add(who["c"], T0, name="c")
        listed = harness.coordinator.list(filters)
        assert "".join(transaction.transactional_id for transaction in listed.transactions) == names
        assert listed.unknown_states == tuple(filters.states & {"Strange"})

    run_scenario(scenario)


def test_a_listed_transaction_has_its_id_and_state() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        (summary,) = harness.coordinator.list(ListTransactions()).transactions
        assert summary == TransactionSummary(TX, who.id, "Empty")

    run_scenario(scenario)


def test_statistics_count_ids_ongoing_and_pending_markers() -> None:
    async def scenario(harness: TransactionCoordinatorHarness) -> None:
        who = await harness.producer()
        await harness.producer("other")
        await harness.add(who, T0)
        statistics = harness.coordinator.statistics()
        assert (statistics.shards, statistics.loading, statistics.transactional_ids) == (1, 0, 2)
        assert (statistics.ongoing, statistics.pending_markers, statistics.waiting) == (1, 0, 0)
        harness.partitions.is_held = True
        await harness.end(who)
        await harness.turns()
        statistics = harness.coordinator.statistics()
        assert (statistics.ongoing, statistics.pending_markers) == (0, 1)

    run_scenario(scenario)
