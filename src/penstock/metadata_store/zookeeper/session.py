"""A ZooKeeper session: turns the interface's calls into requests; its watches and its state.

Not its connections and heartbeats (`session_link`). Answers and events arrive in ZooKeeper's order,
and their callers are resumed in that order through the event loop's queue.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import ConnectionLoss, NoNode, SessionExpired
from penstock.metadata_store.interface import (
    ANY_VERSION,
    Create,
    Created,
    Delete,
    EventKind,
    Operation,
    Result,
    SessionId,
    SessionState,
    SetData,
    Stat,
    Value,
    Watch,
    WatchEvent,
    check_operations,
)
from penstock.metadata_store.paths import check_path
from penstock.metadata_store.watches import WatchManager
from penstock.metadata_store.zookeeper.messages import (
    NO_NODE,
    OK,
    SESSION_EXPIRED,
    SESSION_MOVED,
    Messages,
    WatchedPaths,
    ZooKeeperReply,
    ZooKeeperRequest,
)
from penstock.metadata_store.zookeeper.session_link import LinkStatistics, SessionLink
from penstock.model.histogram import DurationHistogram

MAX_UNANSWERED_BYTES = 64 << 20

Answer = TypeVar("Answer")
Argument = TypeVar("Argument")
Arm = Callable[[int], None]  # called with the error code of the answer


def _arm_nothing(code: int) -> None:
    pass


class ZooKeeperSession:
    """Owned by the event loop on which it was opened."""

    def __init__(
        self,
        config: ZooKeeperConfig,
        *,
        logger: EventLogger,
        latency: DurationHistogram | None = None,
    ) -> None:
        self._latency = latency or DurationHistogram()
        self.state = SessionState.SUSPENDED
        self.failure: BaseException | None = None  # the first; nothing is accepted after it
        self.ended = asyncio.Event()  # expired, closed or failed
        self._messages = Messages(config.chroot, sets_acls=config.security.sets_acls)
        self._link = SessionLink(config, self, logger=logger)
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watches = WatchManager()
        self._absent: set[str] = set()  # watched paths that had no znode
        self._is_closing = False

    async def open(self) -> None:
        """ConnectionLoss if no server accepts it in time."""
        await self._link.open()

    @property
    def id(self) -> SessionId:
        return self._link.session_id

    @property
    def password(self) -> bytes:
        return self._link.password

    @property
    def lease_until_s(self) -> float:
        """The session cannot expire before this, on the loop's clock: ZooKeeper waits for the
        session timeout after every request, and answered one that was sent a timeout before. May
        be read by any thread."""
        return (self._link.confirmed_ms + self._link.session_timeout_ms) / 1000

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def statistics(self) -> LinkStatistics:
        return self._link.statistics()

    # The interface.

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        operation = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        check_operations([operation])
        return await self._ask(self._messages.create(operation))

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        check_path(path)
        request = self._messages.get(path, watched=watch is not None)
        return await self._ask(request, self._arm_data(path, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        request = self._messages.exists(path, watched=watch is not None)
        try:
            return await self._ask(request, self._arm_existence(path, watch))
        except NoNode:
            return None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        check_path(path)
        request = self._messages.children(path, watched=watch is not None)
        return await self._ask(request, self._arm_children(path, watch))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        operation = SetData(path=path, data=data, version=version)
        check_operations([operation])
        return await self._ask(self._messages.set(operation))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation = Delete(path=path, version=version)
        check_operations([operation])
        await self._ask(self._messages.delete(operation))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        check_operations(operations)
        return await self._ask(self._messages.multi(operations))

    async def set_acls(self, path: str, *, is_secure: bool) -> None:
        """Not of the interface: the embedded store has no ACLs."""
        check_path(path)
        await self._ask(self._messages.set_acls(path, is_secure=is_secure))

    async def sync(self) -> None:
        await self._ask(self._messages.sync())

    async def close(self) -> None:
        if self.state is SessionState.ENDED:
            return
        if self._is_closing:
            await self.ended.wait()
            return
        self._is_closing = True
        await self._link.close()
        self._end()

    # Requests.

    def _ask(
        self, request: ZooKeeperRequest[Answer], arm: Arm = _arm_nothing
    ) -> asyncio.Future[Answer]:
        """Sent in this call, not when awaited: requests take effect in the order of the calls."""
        self._check_open()
        answer: asyncio.Future[Answer] = self._loop.create_future()
        complete = partial(self._complete, request, answer, arm, perf_counter())
        self._link.send(request.kind, request.body, complete)
        return answer

    def _check_open(self) -> None:
        if self.state is SessionState.ENDED or self._is_closing:
            raise SessionExpired(self.id)
        if self.failure is not None:
            raise ConnectionLoss(
                f"the ZooKeeper session has stopped after {type(self.failure).__name__}: "
                f"{self.failure}; restart the broker"
            )
        if self.state is SessionState.SUSPENDED:
            raise ConnectionLoss(
                "not connected to ZooKeeper at the moment; this operation was not accepted: "
                "wait, then repeat it"
            )
        if self._link.unanswered_bytes > MAX_UNANSWERED_BYTES:
            raise ConnectionLoss(
                f"{self._link.unanswered_bytes} bytes already wait for ZooKeeper's answers; this "
                f"operation was not accepted: wait, then repeat it"
            )

    def _complete(
        self,
        request: ZooKeeperRequest[Answer],
        answer: asyncio.Future[Answer],
        arm: Arm,
        sent_s: float,
        reply: ZooKeeperReply | None,
    ) -> None:
        if reply is not None:
            self._latency.observe(perf_counter() - sent_s)
            self._note_reply(reply)
        if answer.done():  # the caller is gone, so that its watch is not armed
            return
        try:
            answer.set_result(self._read(request, reply))
        except Exception as error:  # unexpected errors are for the caller too
            answer.set_exception(error)
        if reply is not None:
            arm(reply.code)

    def _read(self, request: ZooKeeperRequest[Answer], reply: ZooKeeperReply | None) -> Answer:
        if reply is None or reply.code == SESSION_MOVED:
            raise ConnectionLoss(
                "the connection to ZooKeeper was lost before the answer; the operation may be done "
                "or not: read, then repeat it"
            )
        if reply.code == SESSION_EXPIRED:
            raise SessionExpired(self.id)
        if reply.code != OK:
            raise request.refuse(reply.code)
        try:
            return request.read(reply.body)
        except (struct.error, ValueError, LookupError, RuntimeError) as error:
            self._link.drop(f"an answer cannot be read ({error})")
            raise ConnectionLoss(
                f"ZooKeeper's answer cannot be read ({error}); read again"
            ) from error

    def _note_reply(self, reply: ZooKeeperReply) -> None:
        if reply.zxid > 0:
            self._link.last_zxid = max(self._link.last_zxid, reply.zxid)
        if reply.code == SESSION_EXPIRED:
            self._loop.call_soon(self._end)  # after the answers that have already arrived
            self._link.drop("the session has expired")
        elif reply.code == SESSION_MOVED:
            self._link.drop("the session has moved to another connection")

    # Watches. They are added with the answer that armed them and removed with their event, in
    # ZooKeeper's order; their owners are called a little later, in the same order.

    def _arm_data(self, path: str, watch: Watch | None) -> Arm:
        def arm(code: int) -> None:
            if watch is not None and code == OK:
                self._absent.discard(path)
                self._watches.watch_data(self.id, path, watch)

        return arm

    def _arm_existence(self, path: str, watch: Watch | None) -> Arm:
        def arm(code: int) -> None:
            if watch is not None and code == NO_NODE:
                self._absent.add(path)
                self._watches.watch_data(self.id, path, watch)
            else:
                arm_present(code)

        arm_present = self._arm_data(path, watch)
        return arm

    def _arm_children(self, path: str, watch: Watch | None) -> Arm:
        def arm(code: int) -> None:
            if watch is not None and code == OK:
                self._watches.watch_children(self.id, path, watch)

        return arm

    def on_event(self, body: bytes) -> None:
        event = self._messages.decode_event(body)
        if event is None:
            return
        if event.kind is not EventKind.CHILD:
            self._absent.discard(event.path)
        for watch in self._watches.take(event):
            self._loop.call_soon(self._call, watch, event)

    # State changes, called by the link.

    def on_connected(self) -> None:
        """Re-arm watches first, so that missed events arrive before any read."""
        data = self._watches.data_paths
        paths = WatchedPaths(
            present=[path for path in data if path not in self._absent],
            absent=[path for path in data if path in self._absent],
            children=self._watches.children_paths,
        )
        for request in self._messages.set_watches(self._link.last_zxid, paths):
            self._link.send(request.kind, request.body, self._on_watches_rearmed)
        self._enter(SessionState.CONNECTED)

    def _on_watches_rearmed(self, reply: ZooKeeperReply | None) -> None:
        if reply is None:
            return  # the next connection re-arms them
        self._note_reply(reply)
        if reply.code != OK:
            self._link.drop(f"watches could not be set again (code {reply.code})")

    def on_suspended(self, reason: str) -> None:
        self._enter(SessionState.SUSPENDED)

    def on_expired(self) -> None:
        self._end()

    def on_failed(self, error: Exception) -> None:
        self._fail(error)

    def _end(self) -> None:
        if self.state is SessionState.ENDED:
            return
        self._enter(SessionState.ENDED)
        event = WatchEvent(EventKind.SESSION_ENDED, "")
        for watch in self._watches.take_all_of(self.id):
            self._loop.call_soon(self._call, watch, event)
        self._loop.call_soon(self.ended.set)

    def _enter(self, state: SessionState) -> None:
        if self.state is SessionState.ENDED:
            return
        self.state = state
        for listener in self._listeners:
            self._loop.call_soon(self._call, listener, state)

    def _call(self, callback: Callable[[Argument], None], argument: Argument) -> None:
        """If a callback fails, its owner is out of date, so the session stops."""
        try:
            callback(argument)
        except Exception as error:
            error.add_note("raised by a watch or listener of the ZooKeeper session")
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._link.abandon(f"the session failed: {type(error).__name__}")
            self.ended.set()
