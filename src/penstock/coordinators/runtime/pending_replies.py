"""Answers on their way: a shard's clients wait here until what they are told is committed.

Not the writing itself. Invariant: an answer leaves only when every write before it is committed,
or it is replaced by the reason why that is not known.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, NewType

from penstock.model.errors import ErrorCode

Waiter = NewType("Waiter", int)  # a request whose answer may come later, from another command


class Failed(NamedTuple):
    """In the place of an answer: nobody knows, or nobody may know."""

    code: ErrorCode


Future = asyncio.Future[Any]  # of an answer, or of Failed


class PendingWrite:
    """One append that is not known to be committed, and the answers that wait for it."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        self.answers: list[tuple[Future, object]] = []


class PendingReplies:
    """Owned by a shard."""

    def __init__(self, new_future: Callable[[], Future]) -> None:
        self._new_future = new_future
        self._writes: deque[PendingWrite] = deque()  # in the order of the log
        self._waiters: dict[Waiter, Future] = {}  # of requests that another command answers
        self._last_waiter = 0

    @property
    def is_writing(self) -> bool:
        return bool(self._writes)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    # -- requests --------------------------------------------------------------------------

    def open(self) -> tuple[Waiter, Future]:
        self._last_waiter += 1
        waiter, future = Waiter(self._last_waiter), self._new_future()
        self._waiters[waiter] = future
        return waiter, future

    def find(self, waiter: Waiter) -> Future | None:
        return self._waiters.get(waiter)

    def answer(self, waiter: Waiter, answer: object) -> None:
        """Once everything that is written now is committed. Later answers to it are dropped."""
        future = self._waiters.pop(waiter, None)
        if future is None:
            return
        if self._writes:
            self._writes[-1].answers.append((future, answer))
        else:
            _settle(future, answer)

    def fail(self, waiter: Waiter, code: ErrorCode) -> None:
        """At once: nothing is claimed."""
        future = self._waiters.pop(waiter, None)
        if future is not None:
            _settle(future, Failed(code))

    # -- writes ----------------------------------------------------------------------------

    def begin(self) -> PendingWrite:
        write = PendingWrite()
        self._writes.append(write)
        return write

    def withdraw(self, write: PendingWrite) -> None:
        """It was refused. Answers that joined it, none as yet, would wait for nothing."""
        assert not write.answers
        self._writes.remove(write)

    def end(self, write: PendingWrite, code: ErrorCode) -> None:
        """It is committed, and with it all before; or its answers are not to be given."""
        if write not in self._writes:
            return  # what was waiting has been told
        if code is not ErrorCode.NONE:
            self._writes.remove(write)
            _fail_all(write, code)
            return
        while self._writes:
            each = self._writes.popleft()
            for future, answer in each.answers:
                _settle(future, answer)
            if each is write:
                return

    def fail_all(self, code: ErrorCode) -> None:
        """Whoever waits, for a write or for another command."""
        while self._writes:
            _fail_all(self._writes.popleft(), code)
        waiters, self._waiters = self._waiters, {}
        for future in waiters.values():
            _settle(future, Failed(code))


def _fail_all(write: PendingWrite, code: ErrorCode) -> None:
    for future, _ in write.answers:
        _settle(future, Failed(code))


def _settle(future: Future, answer: object) -> None:
    if not future.done():  # else whoever asked has gone
        future.set_result(answer)
