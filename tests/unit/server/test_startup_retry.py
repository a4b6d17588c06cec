"""Asking a tree that comes and goes while a broker starts."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from penstock.metadata_store.errors import ConnectionLoss, NoNode, SessionExpired
from penstock.server.startup_retry import RETRY_PAUSE_S, retry_at_startup

LONG_MS, SHORT_MS = 60_000, 300


class Tree:
    """Answers as it is told to, one answer after the other; the last one for ever."""

    def __init__(self, *answers: Exception | str) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.opened = 0

    async def ask(self) -> str:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def open_another(self) -> None:
        self.opened += 1
        if self.opened == 1:
            raise ConnectionLoss("not yet")


def asked_of(tree: Tree, timeout_ms: int) -> str:
    ask: Callable[[], Awaitable[str]] = tree.ask
    return asyncio.run(retry_at_startup(ask, tree.open_another, timeout_ms=timeout_ms))


def test_a_connection_that_is_lost_is_waited_for() -> None:
    tree = Tree(ConnectionLoss("cut"), ConnectionLoss("cut"), "here")
    assert asked_of(tree, LONG_MS) == "here"
    assert (tree.asked, tree.opened) == (3, 0)


def test_a_session_that_has_ended_is_followed_by_another_that_may_take_a_while_to_open() -> None:
    tree = Tree(SessionExpired(7), SessionExpired(7), "here")
    assert asked_of(tree, LONG_MS) == "here"
    assert (tree.asked, tree.opened) == (3, 2)


def test_a_session_that_cannot_be_replaced_in_time_is_given_up() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    tree = Tree(SessionExpired(7))
    with pytest.raises(ConnectionLoss, match=r"unreachable for 0\.3 s"):
        asyncio.run(retry_at_startup(tree.ask, never, timeout_ms=SHORT_MS))


def test_a_process_that_was_frozen_has_not_waited() -> None:
    """The loop's clock goes on while it is frozen, and nothing else does."""
    tree = Tree(ConnectionLoss("cut"), ConnectionLoss("cut"), "here")

    async def frozen() -> str:
        loop = asyncio.get_running_loop()
        loop.call_later(RETRY_PAUSE_S / 2, time.sleep, 2 * SHORT_MS / 1000)
        return await retry_at_startup(tree.ask, tree.open_another, timeout_ms=SHORT_MS)

    assert asyncio.run(frozen()) == "here"


def test_patience_ends_and_says_what_it_waited_for() -> None:
    tree = Tree(ConnectionLoss("there is no connection"))
    with pytest.raises(
        ConnectionLoss,
        match=r"unreachable for 0\.3 s while the broker started \(there is no connection\)",
    ):
        asked_of(tree, SHORT_MS)
    assert tree.asked > 1


def test_without_patience_the_first_answer_counts() -> None:
    tree = Tree(ConnectionLoss("the disk is gone"))
    with pytest.raises(ConnectionLoss, match=r"^the disk is gone$"):
        asked_of(tree, 0)
    assert tree.asked == 1


def test_an_answer_of_the_tree_is_not_asked_for_again() -> None:
    tree = Tree(NoNode("/a"))
    with pytest.raises(NoNode):
        asked_of(tree, LONG_MS)
    assert tree.asked == 1
