"""Stalls of the event loop are recorded with the stack that caused them."""

import asyncio
import time

from penstock.server.watchdog import Watchdog, is_pause


def block_the_loop(until: float) -> None:
    while time.monotonic() < until:
        pass


def has_recorded_it(watchdog: Watchdog) -> bool:
    """Return whether our stall was recorded; a busy machine may cause others."""
    return any("block_the_loop" in stall.stack for stall in watchdog.statistics().recent)


def test_a_stall_is_recorded_with_the_stack_that_blocks_the_loop() -> None:
    async def stall() -> Watchdog:
        watchdog = Watchdog(stall_ms=5, check_every_ms=1)
        watchdog.start(asyncio.get_running_loop())
        deadline = time.monotonic() + 180
        while not has_recorded_it(watchdog) and time.monotonic() < deadline:
            block_the_loop(time.monotonic() + 0.1)
            await asyncio.sleep(0.005)
        watchdog.stop()
        return watchdog

    watchdog = asyncio.run(stall())
    assert has_recorded_it(watchdog)
    assert watchdog.statistics().stalls >= 1
    assert watchdog.statistics().longest_ms >= 5
    assert watchdog.statistics().durations.total == watchdog.statistics().stalls


def test_a_responsive_loop_has_no_stalls() -> None:
    async def rest() -> Watchdog:
        watchdog = Watchdog(stall_ms=5_000, check_every_ms=1)
        watchdog.start(asyncio.get_running_loop())
        await asyncio.sleep(0.05)
        watchdog.stop()
        return watchdog

    assert asyncio.run(rest()).statistics().stalls == 0


def test_a_late_wait_in_which_the_process_did_not_run_is_a_pause() -> None:
    assert is_pause(7.0, 0.01, least_s=1.0)
    assert not is_pause(0.9, 0.0, least_s=1.0)


def test_a_wait_that_computing_made_late_is_no_pause() -> None:
    """A call that holds the interpreter's lock delays the watchdog's thread, too."""
    assert not is_pause(7.0, 6.9, least_s=1.0)
