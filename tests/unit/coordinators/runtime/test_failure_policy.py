"""An unexpected error reloads one shard; too many in a row stop the broker (both coordinators).

The harnesses run a real coordinator; the errors are raised by a command, or by loading a record.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest
from tests.unit.coordinators.group.coordinator_harness import (
    T0,
    GroupCoordinatorHarness,
    commit_of,
)
from tests.unit.coordinators.transaction.harness import TransactionCoordinatorHarness

from penstock.coordinators.group.shard import GroupShard
from penstock.coordinators.runtime.coordinator_runtime import (
    MAX_ERRORS_IN_A_ROW,
    RELOAD_PAUSE_MS,
    CoordinatorFailed,
)
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.errors import ErrorCode

Harness = GroupCoordinatorHarness | TransactionCoordinatorHarness


def fail(*_: object) -> NoReturn:
    raise ZeroDivisionError


async def run_failing_command(harness: Harness) -> None:
    shard = harness.coordinator.find_shard(0)
    assert shard is not None
    reply = await shard.run(fail)
    assert reply == Failed(ErrorCode.UNKNOWN_SERVER_ERROR)


async def reload(harness: Harness) -> None:
    harness.clock.advance_ms(RELOAD_PAUSE_MS)
    await harness.loaded()


async def succeed(harness: Harness) -> None:
    if isinstance(harness, GroupCoordinatorHarness):
        assert await harness.commit(commit_of(T0, 1)) == [ErrorCode.NONE]
    else:
        assert (await harness.init()).code is ErrorCode.NONE


def stops_with(run: Callable[[], Awaitable[None]]) -> CoordinatorFailed:
    with pytest.raises(ExceptionGroup) as stopped:
        asyncio.run(run())  # type: ignore[arg-type]
    error: BaseException = stopped.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, CoordinatorFailed)
    return error


@pytest.mark.parametrize("new", [GroupCoordinatorHarness, TransactionCoordinatorHarness])
def test_an_unexpected_error_reloads_the_shard_and_is_counted(new: Callable[[], Harness]) -> None:
    async def scenario() -> None:
        harness = new()
        async with harness.running():
            await run_failing_command(harness)
            assert harness.coordinator.statistics().unexpected_errors == 1
            assert "; reloading from the log" in harness.reports[0]
            await reload(harness)
            await succeed(harness)

    asyncio.run(scenario())


@pytest.mark.parametrize("new", [GroupCoordinatorHarness, TransactionCoordinatorHarness])
def test_a_success_between_errors_starts_the_count_again(new: Callable[[], Harness]) -> None:
    async def scenario() -> None:
        harness = new()
        async with harness.running():
            for _ in range(2 * MAX_ERRORS_IN_A_ROW):
                await run_failing_command(harness)
                await reload(harness)
                await succeed(harness)
            assert harness.coordinator.statistics().unexpected_errors == 2 * MAX_ERRORS_IN_A_ROW

    asyncio.run(scenario())


@pytest.mark.parametrize("new", [GroupCoordinatorHarness, TransactionCoordinatorHarness])
def test_errors_in_a_row_stop_the_broker(new: Callable[[], Harness]) -> None:
    async def scenario() -> None:
        harness = new()
        async with harness.running():
            for number in range(1, MAX_ERRORS_IN_A_ROW + 1):
                await run_failing_command(harness)
                assert harness.coordinator.statistics().unexpected_errors == number
                if number < MAX_ERRORS_IN_A_ROW:
                    await reload(harness)
            await asyncio.sleep(0)  # the coordinator's task ends here, and cancels this one

    error = stops_with(scenario)
    assert f"failed {MAX_ERRORS_IN_A_ROW} times in a row; stopping the broker" in str(error)


def test_a_load_that_keeps_failing_stops_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write() -> GroupCoordinatorHarness:
        harness = GroupCoordinatorHarness()
        async with harness.running():
            await succeed(harness)
        return harness

    log = asyncio.run(write()).log
    log.lead()
    monkeypatch.setattr(GroupShard, "_load_entry", fail)

    async def scenario() -> None:
        harness = GroupCoordinatorHarness(log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.coordinator.run())
            harness.coordinator.take_partition(0, 0)
            for _ in range(1000):
                await asyncio.sleep(0)
                harness.clock.advance_ms(RELOAD_PAUSE_MS)
        raise AssertionError("the broker goes on")

    assert "group coordinator shard __consumer_offsets-0" in str(stops_with(scenario))
