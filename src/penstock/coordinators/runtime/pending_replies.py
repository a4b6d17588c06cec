"""Replies on hold: a shard's clients wait here until the records behind their reply are committed.

Does not write. Invariant: a reply leaves only when every write before it is committed; if that
cannot be confirmed, the client gets the error instead.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from penstock.coordinators.runtime.result import Waiter
from penstock.model.errors import ErrorCode


class Failed(NamedTuple):
    """Takes the place of a reply: the outcome is unknown, or must not be disclosed."""

    code: ErrorCode


Future = asyncio.Future[Any]  # resolves to a reply, or to Failed


class MarkerReply:
    """Awaits the commit of a transaction marker. It is written already, so this may be dropped."""

    def __init__(self, reply: "ErrorCode | asyncio.Future[ErrorCode | Failed]") -> None:
        self._reply = reply

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        pending = self._reply
        reply = pending if isinstance(pending, ErrorCode) else (yield from pending)
        return reply.code if isinstance(reply, Failed) else reply


class PendingWrite:
    """One append that is not known to be committed, and the replies that wait for it."""

    __slots__ = ("replies",)

    def __init__(self) -> None:
        self.replies: list[tuple[Future, object]] = []


class PendingReplies:
    """Owned by a shard."""

    def __init__(self, new_future: Callable[[], Future]) -> None:
        self._new_future = new_future
        self._writes: deque[PendingWrite] = deque()  # in log order
        self._waiters: dict[Waiter, Future] = {}  # requests that some command has yet to answer
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

    def reply(self, waiter: Waiter, reply: object) -> None:
        """Reply once everything written so far is committed. Further replies to it are dropped."""
        future = self._waiters.pop(waiter, None)
        if future is None:
            return
        if self._writes:
            self._writes[-1].replies.append((future, reply))
        else:
            _resolve(future, reply)

    def fail(self, waiter: Waiter, code: ErrorCode) -> None:
        """Reply at once, because an error claims nothing about the log."""
        future = self._waiters.pop(waiter, None)
        if future is not None:
            _resolve(future, Failed(code))

    # -- writes ----------------------------------------------------------------------------

    def begin(self) -> PendingWrite:
        write = PendingWrite()
        self._writes.append(write)
        return write

    def withdraw(self, write: PendingWrite) -> None:
        """The append was refused, before any reply joined it."""
        assert not write.replies
        self._writes.remove(write)

    def end(self, write: PendingWrite, code: ErrorCode) -> None:
        """NONE: this write and all before it are committed. Else its replies become the error."""
        if write not in self._writes:
            return  # its replies have been sent already
        if code is not ErrorCode.NONE:
            self._writes.remove(write)
            _fail_write(write, code)
            return
        while self._writes:
            committed = self._writes.popleft()
            for future, reply in committed.replies:
                _resolve(future, reply)
            if committed is write:
                return

    def fail_all(self, code: ErrorCode) -> None:
        """Fail every request that waits, for a write or for another command."""
        while self._writes:
            _fail_write(self._writes.popleft(), code)
        waiters, self._waiters = self._waiters, {}
        for future in waiters.values():
            _resolve(future, Failed(code))


def _fail_write(write: PendingWrite, code: ErrorCode) -> None:
    for future, _ in write.replies:
        _resolve(future, Failed(code))


def _resolve(future: Future, reply: object) -> None:
    if not future.done():  # done: the client has gone
        future.set_result(reply)
