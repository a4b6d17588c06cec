"""The embedded metadata store: znodes in this process, durable on disk, in place of ZooKeeper.

Not shared with other processes, so that a session ends only by `close`, by `expire`, or with the
process. A command is journaled, synced, then applied: no reader sees what a crash could undo.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, NamedTuple, Self, TypeVar

from penstock.io.disk import Disk, advise
from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.metadata_store.embedded.journal import Recovered, recover
from penstock.metadata_store.embedded.records import encode_command
from penstock.metadata_store.embedded.session import EmbeddedSession
from penstock.metadata_store.embedded.znode_tree import (
    Applied,
    Command,
    EndSession,
    OpenSession,
    ZnodeChange,
)
from penstock.metadata_store.errors import ConnectionLoss
from penstock.metadata_store.interface import EventKind, SessionId, SessionState, WatchEvent
from penstock.metadata_store.watches import WatchManager

MAX_ROUND_BYTES = 4 << 20
MAX_QUEUED_BYTES = 64 << 20
JOURNAL_LIMIT_BYTES = 16 << 20

_ITEM_BYTES = 200  # the memory of a queued command besides its record

Answer = TypeVar("Answer")
Argument = TypeVar("Argument")


class _Write(NamedTuple):
    command: Command
    record: bytes
    answer: asyncio.Future[Applied]


class _Read(NamedTuple, Generic[Answer]):
    read: Callable[[], Answer]
    answer: asyncio.Future[Answer]


class EmbeddedStatistics(NamedTuple):
    zxid: int
    nodes: int
    sessions: int
    watches: int
    queued: int
    journal_bytes: int
    rounds: int  # each one sync of the journal
    snapshots: int  # since the start


class EmbeddedMetadataStore:
    """Owned by the event loop on which it was opened; only the journal's calls run elsewhere."""

    def __init__(
        self,
        recovered: Recovered,
        *,
        executor: Executor | None,
        now_ms: Callable[[], int],
        journal_limit_bytes: int,
    ) -> None:
        self.tree, self._journal = recovered
        self.watches = WatchManager()
        self.failure: BaseException | None = None  # the first; nothing is accepted after it
        self._failed_call: Exception | None = None  # the first of a watch or listener
        self._executor = executor
        self._now_ms = now_ms
        self._journal_limit_bytes = journal_limit_bytes
        self._sessions: dict[SessionId, EmbeddedSession] = {}
        self._queue: deque[_Write | _Read[object]] = deque()
        self._round: deque[_Write | _Read[object]] = (
            deque()
        )  # taken from the queue, not yet finished
        self._queued_bytes = 0
        self._rounds = self._snapshots = 0
        self._wake = asyncio.Event()
        self._is_closing = False
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="metadata-store-journal")

    @classmethod
    async def open(
        cls,
        disk: Disk,
        folder: str,
        *,
        executor: Executor | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        journal_limit_bytes: int = JOURNAL_LIMIT_BYTES,
        logger: EventLogger = NO_LOGGER,
    ) -> Self:
        """Recover or create the store; without an executor the event loop waits for the disk."""
        start_ms = now_ms()
        recovered = await _off_loop(executor, lambda: recover(disk, folder, start_ms, logger))
        return cls(
            recovered, executor=executor, now_ms=now_ms, journal_limit_bytes=journal_limit_bytes
        )

    async def open_session(self) -> EmbeddedSession:
        applied = await self.submit(OpenSession())
        session = EmbeddedSession(self, SessionId(applied.zxid))
        self._sessions[session.id] = session
        return session

    async def expire(self, session_id: SessionId) -> None:
        """End a session, as ZooKeeper does when its heartbeats stop."""
        await self.submit(EndSession(session_id))

    async def close(self) -> None:
        """Finish queued commands, then stop and end all sessions. Raises the error that stopped
        it."""
        self._is_closing = True
        self._wake.set()
        try:
            await self._task
        finally:
            for session in list(self._sessions.values()):
                self._end(session.id)
            self._journal.close()
        self._raise_failed_call()

    async def wait_end(self) -> None:
        """Wait until it is closed; raises the error that stopped it: ConnectionLoss for a failed
        disk, which says where and what next."""
        await asyncio.shield(self._task)
        if isinstance(self.failure, OSError):
            raise self._lost(self.failure) from self.failure
        if self.failure is not None:
            raise self.failure

    def statistics(self) -> EmbeddedStatistics:
        return EmbeddedStatistics(
            zxid=self.tree.zxid,
            nodes=self.tree.node_count,
            sessions=len(self._sessions),
            watches=len(self.watches),
            queued=len(self._queue) + len(self._round),
            journal_bytes=self._journal.size_bytes,
            rounds=self._rounds,
            snapshots=self._snapshots,
        )

    # Called by sessions; commands and reads take effect in the order of these calls.

    def submit(self, command: Command) -> asyncio.Future[Applied]:
        """Done once the command is durable and its watches have been called."""
        self.check_serving()
        if isinstance(command, ZnodeChange) and self._queued_bytes > MAX_QUEUED_BYTES:
            raise ConnectionLoss(
                f"{self._queued_bytes} bytes already wait for the metadata store's journal; this "
                f"operation was not accepted: wait, then repeat it"
            )
        return self._push(command)

    def read_in_turn(self, read: Callable[[], Answer]) -> asyncio.Future[Answer]:
        """Read after everything that is queued."""
        self.check_serving()
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._enqueue(_Read(read, answer))
        return answer

    def check_serving(self) -> None:
        if self.failure is not None:
            raise self._lost(self.failure)
        if self._is_closing:
            raise ConnectionLoss("the metadata store is closed; open it again")

    def _push(self, command: Command) -> asyncio.Future[Applied]:
        record = encode_command(command)
        answer: asyncio.Future[Applied] = self._loop.create_future()
        self._queued_bytes += len(record) + _ITEM_BYTES
        self._enqueue(_Write(command, record, answer))
        return answer

    def _enqueue(self, item: "_Write | _Read[Answer]") -> None:
        self._queue.append(item)  # type: ignore[arg-type]  # an answer belongs to its own read
        self._wake.set()

    # The task: rounds of one sync each, during which the next round's commands queue up.

    async def _run(self) -> None:
        try:
            while self._queue or not self._is_closing:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await self._do_round()
        except OSError as error:
            self._fail(error)  # callers get ConnectionLoss, the broker gets it by `wait_end`
        except BaseException as error:
            self._fail(error)
            raise

    async def _do_round(self) -> None:
        records = self._gather_round()
        now_ms = self._now_ms()
        if records:
            first_zxid = self.tree.zxid + 1
            append = self._journal.append
            await _off_loop(self._executor, lambda: append(first_zxid, records, now_ms))
            self._rounds += 1
        while self._round:
            self._finish(self._round.popleft(), now_ms)
            self._raise_failed_call()
            # The caller continues before the next change, so that it sees its own write's state.
            await asyncio.sleep(0)
        await self._limit_journal()

    def _gather_round(self) -> list[bytes]:
        records: list[bytes] = []
        length = 0
        while self._queue and length < MAX_ROUND_BYTES:
            item = self._queue.popleft()
            self._round.append(item)
            if isinstance(item, _Write):
                records.append(item.record)
                length += len(item.record)
                self._queued_bytes -= len(item.record) + _ITEM_BYTES
        return records

    async def _limit_journal(self) -> None:
        journal = self._journal
        # Do not rewrite a large snapshot for a small journal.
        if journal.size_bytes > max(self._journal_limit_bytes, journal.snapshot_bytes):
            image = self.tree.image()
            await _off_loop(self._executor, lambda: journal.snapshot(image))
            self._snapshots += 1

    def _finish(self, item: "_Write | _Read[object]", now_ms: int) -> None:
        if isinstance(item, _Write):
            self._apply(item, now_ms)
        elif not item.answer.cancelled():
            try:
                item.answer.set_result(item.read())
            except Exception as error:
                item.answer.set_exception(error)

    def _apply(self, item: _Write, now_ms: int) -> None:
        applied = self.tree.apply(item.command, now_ms)
        match item.command:
            case ZnodeChange(session_id) if session_id in self._sessions:
                self._sessions[session_id].count_answer()
            case EndSession(session_id):
                self._end(session_id)
        for event in applied.events:
            for watch in self.watches.take(event):
                self._call(watch, event)
        if not item.answer.cancelled():
            item.answer.set_result(applied)
        elif isinstance(item.command, OpenSession):  # its id is lost
            self._push(EndSession(SessionId(applied.zxid)))

    def _end(self, session_id: SessionId) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._call(session.enter, SessionState.ENDED)
        for watch in self.watches.take_all_of(session_id):
            self._call(watch, WatchEvent(EventKind.SESSION_ENDED, ""))

    def _call(self, callback: Callable[[Argument], None], argument: Argument) -> None:
        """If a callback fails, its owner is out of date: call the others, then stop the store."""
        try:
            callback(argument)
        except Exception as error:
            error.add_note("raised by a watch or listener of the metadata store")
            self._failed_call = self._failed_call or error

    def _raise_failed_call(self) -> None:
        if self._failed_call is not None:
            raise self._failed_call

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        for item in (*self._round, *self._queue):
            if not item.answer.done():
                item.answer.set_exception(self._lost(error))
        self._round.clear()
        self._queue.clear()
        for session in self._sessions.values():
            self._call(session.enter, SessionState.SUSPENDED)

    def _lost(self, failure: BaseException) -> ConnectionLoss:
        remedy = f"{advise(failure)} and restart" if isinstance(failure, OSError) else "restart"
        return ConnectionLoss(
            f"the metadata store in {self._journal.folder} has stopped after "
            f"{type(failure).__name__}: {failure}; operations in progress may be done or not: "
            f"{remedy} the broker"
        )


async def _off_loop(executor: Executor | None, work: Callable[[], Answer]) -> Answer:
    if executor is None:
        return work()
    return await asyncio.get_running_loop().run_in_executor(executor, work)
