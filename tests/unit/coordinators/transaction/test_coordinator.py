"""The coordinator among its shards: where it may answer, what failing writes cost, looking."""

import asyncio

import pytest
from tests.unit.coordinators.group.coordinator_desk import TableLog
from tests.unit.coordinators.transaction.desk import NONE, T0, T1, TX, Desk, replayed, told

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.coordinators.transaction.config import TransactionConfig
from penstock.coordinators.transaction.records import State
from penstock.coordinators.transaction.requests import (
    ListTransactions,
    ProducerIdAndEpoch,
    TransactionListing,
)
from penstock.model.errors import ErrorCode

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_its_settings_are_those_of_the_broker() -> None:
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


def test_only_the_leader_of_an_ids_partition_answers_for_it() -> None:
    async def story(desk: Desk) -> None:
        for number in range(20):
            name = f"t{number}"
            is_here = partition_for(name, 4) != 2
            code = (await desk.init(name)).code
            assert code is (NONE if is_here else ErrorCode.NOT_COORDINATOR)
            assert desk.coordinator.describe(name).code is code

    log = TableLog(partitions=4)
    log.lose(2)
    told(story, Desk(log))


def test_before_its_topic_exists_nobody_coordinates() -> None:
    async def story(desk: Desk) -> None:
        desk.log.exists = False
        assert desk.coordinator.partition_of(TX) == partition_for(TX, 50)
        assert (await desk.init()).code is AWAY
        assert await desk.coordinator.ensure_topic() is NONE
        assert (await desk.init()).code is NONE

    told(story)


def test_while_it_is_loaded_clients_are_to_wait() -> None:
    first = Desk()

    async def begin(desk: Desk) -> None:
        await desk.producer()

    told(begin, first)
    first.log.lead()

    async def story() -> None:
        desk = Desk(first.log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(desk.coordinator.run())
            desk.coordinator.take_partition(0, 1)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (await desk.init()).code is code
            assert desk.coordinator.describe(TX).code is code
            assert desk.coordinator.list(ListTransactions()).code is code
            await desk.loaded()
            assert (await desk.init()).code is NONE
            desk.coordinator.close()
            assert desk.coordinator.list(ListTransactions()).code is AWAY

    asyncio.run(story())


def test_what_is_refused_by_the_log_has_not_happened() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        desk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await desk.add(who, T0) is AWAY
        assert (await desk.init()).code is AWAY
        assert desk.known().state is State.EMPTY
        desk.log.refusal = None
        assert await desk.add(who, T0) is NONE
        desk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await desk.end(who)).code is AWAY
        assert desk.known().state is State.ONGOING
        desk.log.refusal = None
        assert (await desk.end(who)).code is NONE

    told(story)


def test_losing_the_lead_answers_those_who_wait() -> None:
    async def story(desk: Desk) -> None:
        desk.log.is_held = True
        asking = asyncio.create_task(desk.init())
        await desk.turns()
        desk.coordinator.drop_partition(0)
        assert (await asking).code is ErrorCode.NOT_COORDINATOR

    told(story)


def test_a_command_that_fails_costs_a_reload_and_nothing_that_was_written() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        await desk.add(who, T0)
        before = desk.shard.state.snapshot()

        def fail(known: object, now_ms: int) -> None:
            raise ZeroDivisionError

        answer = await desk.shard.run(fail)  # type: ignore[arg-type]
        assert answer == (ErrorCode.UNKNOWN_SERVER_ERROR,)
        assert "not foreseen" in desk.reports[-1]
        desk.clock.advance_ms(100)
        await desk.loaded()
        assert desk.shard.state.snapshot() == before
        assert (await desk.end(who)).code is NONE

    told(story)


def test_what_was_written_is_there_again_after_a_restart() -> None:
    first = Desk()

    async def begin(desk: Desk) -> None:
        who = await desk.producer("a")
        await desk.add(who, T0, T1, name="a")
        who = await desk.producer("b")
        await desk.add(who, T0, name="b")
        await desk.end(who, name="b")
        await desk.turns()

    told(begin, first)
    first.log.lead()

    async def go_on(desk: Desk) -> None:
        known = desk.shard.state.known
        assert {name: each.state for name, each in known.items()} == {
            "a": State.ONGOING,
            "b": State.COMPLETE_COMMIT,
        }
        assert (await desk.end(ProducerIdAndEpoch(1000, 0), name="a")).code is NONE
        await desk.turns()
        assert replayed(desk.log).snapshot() == desk.shard.state.snapshot()

    told(go_on, Desk(first.log, partitions=first.partitions))


def test_damage_in_the_log_costs_what_it_hit() -> None:
    desk = Desk()

    async def begin(desk: Desk) -> None:
        for name in "abc":
            await desk.producer(name)

    told(begin, desk)
    desk.log.lead()
    data = bytearray(desk.log.raw())
    data[len(data) // 2] ^= 1  # in the second of three equal batches

    async def damaged(partition: int, start: int, max_bytes: int) -> object:
        return chunk._replace(batches=bytes(data))

    chunk = asyncio.run(desk.log.read(0, 0, 10_000))
    other = Desk(desk.log)
    other.log.read = damaged  # type: ignore[method-assign,assignment]

    async def go_on(desk: Desk) -> None:
        assert set(desk.shard.state.known) == {"a", "c"}
        assert "damaged" in desk.reports[0]

    told(go_on, other)


# -- looking -------------------------------------------------------------------------------


def test_a_description_says_what_is_open() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer(timeout_ms=1234)
        await desk.add(who, T1, T0)
        found = desk.coordinator.describe(TX)
        assert (found.code, found.state, found.timeout_ms) == (NONE, "Ongoing", 1234)
        assert (found.producer_id, found.producer_epoch) == who
        assert found.partitions == (T0, T1)
        assert found.started_ms == desk.clock.wall_ms()
        assert not found.is_two_phase
        missing = desk.coordinator.describe("nobody")
        assert missing.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    told(story)


@pytest.mark.parametrize(
    ("asked", "names"),
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
def test_a_list_shows_what_was_asked_for(asked: ListTransactions, names: str) -> None:
    async def story(desk: Desk) -> None:
        who = {name: await desk.producer(name) for name in "abc"}
        await desk.add(who["b"], T0, name="b")
        desk.clock.advance_ms(10)
        await desk.add(who["c"], T0, name="c")
        found = desk.coordinator.list(asked)
        assert "".join(transaction.transactional_id for transaction in found.transactions) == names
        assert found.unknown_states == tuple(asked.states & {"Strange"})

    told(story)


def test_a_listed_one_has_its_id_and_state() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        (found,) = desk.coordinator.list(ListTransactions()).transactions
        assert found == TransactionListing(TX, who.id, "Empty")

    told(story)


def test_statistics_count() -> None:
    async def story(desk: Desk) -> None:
        who = await desk.producer()
        await desk.producer("other")
        await desk.add(who, T0)
        found = desk.coordinator.statistics()
        assert (found.shards, found.loading, found.transactional_ids) == (1, 0, 2)
        assert (found.ongoing, found.untold, found.waiting) == (1, 0, 0)
        desk.partitions.is_held = True
        await desk.end(who)
        await desk.turns()
        found = desk.coordinator.statistics()
        assert (found.ongoing, found.untold) == (0, 1)

    told(story)
