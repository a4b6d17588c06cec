"""Imports after a start run off the event loop, step by step, and stop with the broker."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from penstock.server.warm_up import warm_up


def test_steps_run_one_after_another_off_the_loop() -> None:
    seen: list[tuple[int, int]] = []

    def steps() -> Iterator[None]:
        for number in range(3):
            seen.append((number, threading.get_ident()))
            yield

    asyncio.run(warm_up(steps(), delay_s=0))
    assert [number for number, _ in seen] == [0, 1, 2]
    assert threading.get_ident() not in {thread for _, thread in seen}


def test_nothing_is_imported_before_the_delay() -> None:
    seen: list[int] = []

    async def stop_early() -> None:
        warming = asyncio.create_task(warm_up(map(seen.append, range(3)), delay_s=3600))
        await asyncio.sleep(0)
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)

    asyncio.run(stop_early())
    assert seen == []


def test_a_failing_step_is_raised() -> None:
    def steps() -> Iterator[None]:
        yield
        raise LookupError("no such schema")

    with pytest.raises(LookupError, match="no such schema"):
        asyncio.run(warm_up(steps(), delay_s=0))


def test_a_stopping_broker_waits_for_one_step_at_most() -> None:
    started, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(3):
            seen.append(number)
            started.set()
            go_on.wait(180)
            yield

    async def stop_meanwhile() -> None:
        warming = asyncio.create_task(warm_up(steps(), delay_s=0))
        await asyncio.to_thread(started.wait, 180)
        warming.cancel()
        go_on.set()
        await asyncio.gather(warming, return_exceptions=True)

    asyncio.run(stop_meanwhile())
    assert seen == [0]
