"""Two ways to choose one leader among candidates: race for a node, or wait in a queue.

Not the leader's work. Each election raises the epoch node in the same transaction that decides it;
a leader whose every write checks that node's version (`ElectionResult.fence`) can do no harm after
it has lost, however late it learns of it (KAFKA-6082).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.metadata_store.errors import (
    BadVersion,
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

_NUMBER_DIGITS = 10  # of a sequential node
_PLACE = re.compile(r"[0-9a-f]{16}-[0-9]{10}")
_SESSION_MASK = (1 << 64) - 1  # ZooKeeper's ids are signed


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    """Won once; over for good when its node is gone. A refused fence means the same: resign."""

    epoch: int
    epoch_path: str
    epoch_version: int  # of the epoch node since this election
    node_path: str
    node_czxid: int  # tells this leadership's node from a later one of the same path

    def fence(self, operations: Sequence[Operation]) -> list[Operation]:
        """The operations as a `multi` that fails once somebody else has been elected."""
        return [CheckVersion(path=self.epoch_path, version=self.epoch_version), *operations]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Who stands for election: what its node holds, and how it knows that a node is its own.

    At most one living process may own the same nodes: it removes those of its earlier sessions.
    """

    data: bytes
    owns: Callable[[bytes], bool] = field(default=lambda data: False)

    def is_of(self, data: bytes) -> bool:
        return data == self.data or self.owns(data)


class Election(Protocol):
    """Of one candidate in one session. After SessionExpired: a new session, a new election.

    After ConnectionLost every method may be called again: it looks first at what has been done.
    """

    async def campaign(self) -> ElectionResult:
        """Wait until elected."""

    async def wait_lost(self, leadership: ElectionResult) -> None:
        """Wait until the leadership is over; returns at once when it is, also by the session."""

    async def resign(self, leadership: ElectionResult) -> None:
        """Give it up; fine when it is over already."""


class RaceElection:
    """Whoever creates the node first leads; when it goes, all the others are woken and race."""

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
            # The epoch first: while its version stands, the node read after it stands too.
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

    async def wait_lost(self, leadership: ElectionResult) -> None:
        await _wait_gone(self._session, leadership)

    async def resign(self, leadership: ElectionResult) -> None:
        await _delete_fenced(self._session, leadership)

    async def _take(
        self, epoch: "_Epoch", before: Sequence[Operation] = ()
    ) -> ElectionResult | None:
        """Raise the epoch and create the node in one step, or find that somebody was faster."""
        node = Create(path=self._leader_path, data=self._candidate.data, ephemeral=True)
        raised = await _try_raise(self._session, epoch, [*before, node])
        if raised is None:
            return None
        return raised.led_by(self._leader_path, czxid=raised.stat.mzxid)  # of the same step

    async def _recognise(self, epoch: "_Epoch", leader: Stat) -> ElectionResult | None:
        """An earlier try succeeded after all, though its answer was lost."""
        if epoch.stat.mzxid == leader.czxid:
            return epoch.led_by(self._leader_path, czxid=leader.czxid)
        # Somebody raised the epoch without being elected: nobody knows whom it fences.
        return await self._take(epoch, [Delete(path=self._leader_path)])

    async def _is_left_over(self, leader: Stat) -> bool:
        """Of this candidate's earlier session, which has not expired yet (KAFKA-1387, 7165)."""
        try:
            value = await self._session.get(self._leader_path)
        except NoNode:
            return False  # the watch has seen that, and wakes us
        return value.stat.czxid == leader.czxid and self._candidate.is_of(value.data)


class QueueElection:
    """First come, first served: each waits for the one before it, so that a change wakes one.

    The first makes the leader's node as well, where everybody looks for the leader: a place in the
    queue is the right to make it, and when it goes, by whomever, the leadership is over.
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
            place = next((n for n in queue if n.startswith(self._prefix)), None)
            if place is None:
                await self._line_up()
            elif place == queue[0]:
                won = await self._lead(self._path(place))
                if won is not None:
                    return won
            else:
                changed = _Signal()
                before = queue[queue.index(place) - 1]
                if await self._session.exists(self._path(before), changed) is not None:
                    await changed.wait_in(self._session)

    async def wait_lost(self, leadership: ElectionResult) -> None:
        await _wait_gone(self._session, leadership)

    async def resign(self, leadership: ElectionResult) -> None:
        await _delete_fenced(self._session, leadership)
        for name in await self._queue():
            if name.startswith(self._prefix):
                await _delete_if_there(self._session, self._path(name))

    async def _lead(self, place_path: str) -> ElectionResult | None:
        """As the first, before whom nobody can come any more; None if the place is gone."""
        # The epoch first: while its version stands, the node read after it stands too.
        epoch = await _read_epoch(self._session, self._epoch_path)
        leader = await self._session.exists(self._leader_path)
        # Of who led without a place any more; its writes are refused from this step on.
        before = [] if leader is None else [Delete(path=self._leader_path)]
        node = Create(path=self._leader_path, data=self._candidate.data, ephemeral=True)
        raised = await _try_raise(
            self._session, epoch, [CheckVersion(path=place_path), *before, node]
        )
        if raised is None:
            return None
        return raised.led_by(self._leader_path, czxid=raised.stat.mzxid)  # of the same step

    async def _line_up(self) -> None:
        await self._session.create(
            self._path(self._prefix), self._candidate.data, ephemeral=True, sequential=True
        )

    async def _remove_left_over(self) -> None:
        """Places of this candidate's earlier sessions, which have not expired yet."""
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
        """Places in their order. Not watched: only the one before is, or all would be woken."""
        names = await self._session.children(self._queue_path)
        places = [name for name in names if _PLACE.fullmatch(name)]  # people put other things too
        return sorted(places, key=lambda name: int(name[-_NUMBER_DIGITS:]))

    @property
    def _prefix(self) -> str:
        # Found again by it, if the answer of the creation is lost.
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
    return _Epoch(path, int(data), stat)


async def _try_raise(
    session: Session, epoch: _Epoch, operations: Sequence[Operation]
) -> _Epoch | None:
    """The operations and the next epoch in one step; None if things are not as they were read."""
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


async def _wait_gone(session: Session, leadership: ElectionResult) -> None:
    kind = None
    while kind is not EventKind.SESSION_ENDED:
        changed = _Signal()
        try:
            stat = await session.exists(leadership.node_path, changed)
        except SessionExpired:
            return
        if stat is None or stat.czxid != leadership.node_czxid:
            return
        kind = (await changed.wait()).kind


async def _ensure_path(session: Session, path: str) -> None:
    if path == "/" or await session.exists(path) is not None:
        return
    await _ensure_path(session, parent_of(path))
    await _create_if_absent(session, path, b"")


async def _create_if_absent(session: Session, path: str, data: bytes) -> None:
    with suppress(NodeExists):  # another candidate does the same
        await session.create(path, data)


async def _delete_fenced(session: Session, leadership: ElectionResult) -> None:
    """Only with the check: by now the node of this path may be another's."""
    try:
        await session.multi(leadership.fence([Delete(path=leadership.node_path)]))
    except MultiFailed as failed:
        if not isinstance(failed.error, BadVersion | NoNode):
            raise


async def _delete_if_there(session: Session, path: str) -> None:
    with suppress(NoNode):
        await session.delete(path)


class _Signal:
    """A watch that can be waited for."""

    def __init__(self) -> None:
        self._event: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()

    def __call__(self, event: WatchEvent) -> None:
        if not self._event.done():
            self._event.set_result(event)

    async def wait(self) -> WatchEvent:
        return await self._event

    async def wait_in(self, session: Session) -> None:
        """As `wait`, where the session's end is an error."""
        event = await self.wait()
        if event.kind is EventKind.SESSION_ENDED:
            raise SessionExpired(session.id)
