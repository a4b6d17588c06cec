"""Requests to a metadata store that is unreachable for a while when a broker starts."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from penstock.metadata_store.errors import ConnectionLoss, NoNode, SessionExpired
from penstock.server.startup_retry import RETRY_PAUSE_S, retry_at_startup

LONG_MS, SHORT_MS = 60_000, 300


class FlakyStore:
    """Returns its results one by one, and the last one forever."""

    def __init__(self, *answers: Exception | str) -> None:
        self._answers = list(answers)
        self.requests = 0
        self.opened = 0

    async def ask(self) -> str:
        self.requests += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def open_session(self) -> None:
        self.opened += 1
        if self.opened == 1:
            raise ConnectionLoss("not yet")


def retried(store: FlakyStore, timeout_ms: int) -> str:
    ask: Callable[[], Awaitable[str]] = store.ask
    return asyncio.run(retry_at_startup(ask, store.open_session, timeout_ms=timeout_ms))


def test_a_lost_connection_is_retried() -> None:
    store = FlakyStore(ConnectionLoss("cut"), ConnectionLoss("cut"), "here")
    assert retried(store, LONG_MS) == "here"
    assert (store.requests, store.opened) == (3, 0)


def test_an_expired_session_is_replaced_even_if_that_takes_several_attempts() -> None:
    store = FlakyStore(SessionExpired(7), SessionExpired(7), "here")
    assert retried(store, LONG_MS) == "here"
    assert (store.requests, store.opened) == (3, 2)


def test_an_expired_session_that_cannot_be_replaced_in_time_raises() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    store = FlakyStore(SessionExpired(7))
    with pytest.raises(ConnectionLoss, match=r"unreachable for 0\.3 s"):
        asyncio.run(retry_at_startup(store.ask, never, timeout_ms=SHORT_MS))


def test_a_frozen_process_does_not_use_up_its_retries() -> None:
    """Only the loop's clock advances while a process is frozen."""
    store = FlakyStore(ConnectionLoss("cut"), ConnectionLoss("cut"), "here")

    async def frozen() -> str:
        loop = asyncio.get_running_loop()
        loop.call_later(RETRY_PAUSE_S / 2, time.sleep, 2 * SHORT_MS / 1000)
        return await retry_at_startup(store.ask, store.open_session, timeout_ms=SHORT_MS)

    assert asyncio.run(frozen()) == "here"


def test_retries_end_after_the_timeout_with_the_last_error() -> None:
    store = FlakyStore(ConnectionLoss("there is no connection"))
    with pytest.raises(
        ConnectionLoss,
        match=r"unreachable for 0\.3 s while the broker started \(there is no connection\)",
    ):
        retried(store, SHORT_MS)
    assert store.requests > 1


def test_without_a_timeout_the_first_error_is_raised() -> None:
    store = FlakyStore(ConnectionLoss("the disk is gone"))
    with pytest.raises(ConnectionLoss, match=r"^the disk is gone$"):
        retried(store, 0)
    assert store.requests == 1


def test_an_error_response_is_not_retried() -> None:
    store = FlakyStore(NoNode("/a"))
    with pytest.raises(NoNode):
        retried(store, LONG_MS)
    assert store.requests == 1
