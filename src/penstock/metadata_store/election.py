"""Leader election among candidates: race for an ephemeral znode, or wait in a queue.

Not the leader's work. The transaction that elects also raises the epoch znode. A leader whose every
write checks that znode's version (`ElectionResult.fence`) changes nothing after it is deposed,
however late it learns of it (KAFKA-6082).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.metadata_store.errors import (
    BadVersion,
    DamagedZnode,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    CheckVersion,
    Create,
    Delete,
    EventKind,
    Operation,
    Session,
    SetData,
    Stat,
    WatchEvent,
)
from penstock.metadata_store.paths import parent_of

_NUMBER_DIGITS = 10  # of a sequential znode
_ENTRY = re.compile(r"[0-9a-f]{16}-[0-9]{10}")
_SESSION_MASK = (1 << 64) - 1  # ZooKeeper's ids are signed


class ElectionResult(NamedTuple):
    """A won election. It ends when its znode is gone; a failed fence means that it has ended."""

    epoch: int
    epoch_path: str
    epoch_version: int  # of the epoch znode since this election
    node_path: str
    node_czxid: int  # tells its znode from a later one of the same path

    def fence(self, operations: Sequence[Operation]) -> list[Operation]:
        """The operations as a `multi` that fails once another candidate has been elected."""
        return [CheckVersion(path=self.epoch_path, version=self.epoch_version), *operations]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate: the data of its znode, and how it recognizes its own znodes.

    At most one running process may own the same znodes: it deletes those of its earlier sessions.
    """

    data: bytes
    owns: Callable[[bytes], bool] = field(default=lambda data: False)

    def is_of(self, data: bytes) -> bool:
        return data == self.data or self.owns(data)


class Election(Protocol):
    """One candidate in one session. After SessionExpired, open a session and a new election.

    After ConnectionLoss every method may be called again: it first reads what has been done.
    """

    async def campaign(self) -> ElectionResult:
        """Wait until elected."""

    async def wait_lost(self, elected: ElectionResult) -> None:
        """Wait until it is deposed or its session has ended; returns at once if so already."""

    async def resign(self, elected: ElectionResult) -> None:
        """End the leadership; no error if it has ended already."""


class RaceElection:
    """The candidate that creates the znode leads; when it is deleted, all others race again."""

    def __init__(
        self, session: Session, candidate: Candidate, *, leader_path: str, epoch_path: str
    ) -> None:
        self._session = session
        self._candidate = candidate
        self._leader_path = leader_path
        self._epoch_path = epoch_path

    async def campaign(self) -> ElectionResult:
        await _ensure_path(self._session, parent_of(self._leader_path))
        while True:
            changed = _Signal()
            # Epoch first: as long as its version is unchanged, so is the znode read after it.
            epoch = await _read_epoch(self._session, self._epoch_path)
            leader = await self._session.exists(self._leader_path, changed)
            if leader is None:
                won = await self._take(epoch)
            elif leader.ephemeral_owner == self._session.id:
                won = await self._recognise(epoch, leader)
            elif await self._is_left_over(leader):
                won = await self._take(epoch, [Delete(path=self._leader_path)])
            else:
                await changed.wait_in(self._session)
                continue
            if won is not None:
                return won

    async def wait_lost(self, elected: ElectionResult) -> None:
        await _wait_gone(self._session, elected)

    async def resign(self, elected: ElectionResult) -> None:
        await _delete_fenced(self._session, elected)

    async def _take(
        self, epoch: "_Epoch", before: Sequence[Operation] = ()
    ) -> ElectionResult | None:
        """Raise the epoch and create the znode atomically; None if another candidate was faster."""
        node = Create(path=self._leader_path, data=self._candidate.data, ephemeral=True)
        raised = await _try_raise(self._session, epoch, [*before, node])
        if raised is None:
            return None
        return raised.led_by(self._leader_path, czxid=raised.stat.mzxid)  # of the same transaction

    async def _recognise(self, epoch: "_Epoch", leader: Stat) -> ElectionResult | None:
        """An earlier attempt succeeded, but its answer was lost."""
        if epoch.stat.mzxid == leader.czxid:
            return epoch.led_by(self._leader_path, czxid=leader.czxid)
        # The epoch was raised without an election, so it is unknown what it fences.
        return await self._take(epoch, [Delete(path=self._leader_path)])

    async def _is_left_over(self, leader: Stat) -> bool:
        """Whether it is of this candidate's unexpired earlier session (KAFKA-1387, KAFKA-7165)."""
        try:
            value = await self._session.get(self._leader_path)
        except NoNode:
            return False  # the watch has fired and wakes this candidate
        return value.stat.czxid == leader.czxid and self._candidate.is_of(value.data)


class QueueElection:
    """First come, first served: each candidate watches the one before it, so that a change wakes
    one.

    The first in the queue also creates the leader's znode, where everybody looks for the leader.
    The leadership ends when that znode is deleted, by whatever client.
    """

    def __init__(
        self,
        session: Session,
        candidate: Candidate,
        *,
        queue_path: str,
        leader_path: str,
        epoch_path: str,
    ) -> None:
        self._session = session
        self._candidate = candidate
        self._queue_path = queue_path
        self._leader_path = leader_path
        self._epoch_path = epoch_path

    async def campaign(self) -> ElectionResult:
        await _ensure_path(self._session, self._queue_path)
        await _ensure_path(self._session, parent_of(self._leader_path))
        await self._remove_left_over()
        while True:
            queue = await self._queue()
            entry = next((name for name in queue if name.startswith(self._prefix)), None)
            if entry is None:
                await self._enqueue()
            elif entry == queue[0]:
                won = await self._lead(self._path(entry))
                if won is not None:
                    return won
            else:
                changed = _Signal()
                before = queue[queue.index(entry) - 1]
                if await self._session.exists(self._path(before), changed) is not None:
                    await changed.wait_in(self._session)

    async def wait_lost(self, elected: ElectionResult) -> None:
        await _wait_gone(self._session, elected)

    async def resign(self, elected: ElectionResult) -> None:
        await _delete_fenced(self._session, elected)
        for name in await self._queue():
            if name.startswith(self._prefix):
                await _delete_if_there(self._session, self._path(name))

    async def _lead(self, entry_path: str) -> ElectionResult | None:
        """Lead as the first of the queue; None if its entry is gone."""
        # Epoch first: as long as its version is unchanged, so is the znode read after it.
        epoch = await _read_epoch(self._session, self._epoch_path)
        leader = await self._session.exists(self._leader_path)
        # A leader that lost its entry; its writes fail from this transaction on.
        before = [] if leader is None else [Delete(path=self._leader_path)]
        node = Create(path=self._leader_path, data=self._candidate.data, ephemeral=True)
        raised = await _try_raise(
            self._session, epoch, [CheckVersion(path=entry_path), *before, node]
        )
        if raised is None:
            return None
        return raised.led_by(self._leader_path, czxid=raised.stat.mzxid)  # of the same transaction

    async def _enqueue(self) -> None:
        await self._session.create(
            self._path(self._prefix), self._candidate.data, ephemeral=True, sequential=True
        )

    async def _remove_left_over(self) -> None:
        """Entries of this candidate's earlier sessions that have not expired yet."""
        for name in await self._queue():
            if name.startswith(self._prefix):
                continue
            try:
                data, _ = await self._session.get(self._path(name))
            except NoNode:
                continue
            if self._candidate.is_of(data):
                await _delete_if_there(self._session, self._path(name))

    async def _queue(self) -> list[str]:
        """Entries in order. Not watched: a watch on the queue would wake every candidate."""
        names = await self._session.children(self._queue_path)
        entries = [name for name in names if _ENTRY.fullmatch(name)]  # others may be there too
        return sorted(entries, key=lambda name: int(name[-_NUMBER_DIGITS:]))

    @property
    def _prefix(self) -> str:
        # Identifies the entry if the answer to its creation is lost.
        return f"{self._session.id & _SESSION_MASK:016x}-"

    def _path(self, name: str) -> str:
        return f"{self._queue_path}/{name}"


class _Epoch(NamedTuple):
    path: str
    number: int
    stat: Stat

    def led_by(self, node_path: str, *, czxid: int) -> ElectionResult:
        return ElectionResult(
            epoch=self.number,
            epoch_path=self.path,
            epoch_version=self.stat.version,
            node_path=node_path,
            node_czxid=czxid,
        )


async def _read_epoch(session: Session, path: str) -> _Epoch:
    try:
        data, stat = await session.get(path)
    except NoNode:
        await _ensure_path(session, parent_of(path))
        await _create_if_absent(session, path, b"0")
        data, stat = await session.get(path)
    try:
        return _Epoch(path, int(data), stat)
    except ValueError:
        raise DamagedZnode(path, f"its data is {data[:40]!r}, not a number") from None


async def _try_raise(
    session: Session, epoch: _Epoch, operations: Sequence[Operation]
) -> _Epoch | None:
    """The operations and the next epoch atomically; None if the znodes have changed since."""
    number = epoch.number + 1
    data = str(number).encode()
    step = SetData(path=epoch.path, data=data, version=epoch.stat.version)
    try:
        results = await session.multi([step, *operations])
    except MultiFailed as failed:
        if isinstance(failed.error, BadVersion | NodeExists | NoNode):
            return None
        raise
    stat = results[0]
    assert isinstance(stat, Stat)
    return _Epoch(epoch.path, number, stat)


async def _wait_gone(session: Session, elected: ElectionResult) -> None:
    kind = None
    while kind is not EventKind.SESSION_ENDED:
        changed = _Signal()
        try:
            stat = await session.exists(elected.node_path, changed)
        except SessionExpired:
            return
        if stat is None or stat.czxid != elected.node_czxid:
            return
        kind = (await changed.wait()).kind


async def _ensure_path(session: Session, path: str) -> None:
    if path == "/" or await session.exists(path) is not None:
        return
    await _ensure_path(session, parent_of(path))
    await _create_if_absent(session, path, b"")


async def _create_if_absent(session: Session, path: str, data: bytes) -> None:
    with suppress(NodeExists):  # another candidate created it
        await session.create(path, data)


async def _delete_fenced(session: Session, elected: ElectionResult) -> None:
    """Fenced, because the znode may be another candidate's by now."""
    try:
        await session.multi(elected.fence([Delete(path=elected.node_path)]))
    except MultiFailed as failed:
        if not isinstance(failed.error, BadVersion | NoNode):
            raise


async def _delete_if_there(session: Session, path: str) -> None:
    with suppress(NoNode):
        await session.delete(path)


class _Signal:
    """A watch that can be awaited."""

    def __init__(self) -> None:
        self._event: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()

    def __call__(self, event: WatchEvent) -> None:
        if not self._event.done():
            self._event.set_result(event)

    async def wait(self) -> WatchEvent:
        return await self._event

    async def wait_in(self, session: Session) -> None:
        """Like `wait`, but raises SessionExpired if the session ends."""
        event = await self.wait()
        if event.kind is EventKind.SESSION_ENDED:
            raise SessionExpired(session.id)
