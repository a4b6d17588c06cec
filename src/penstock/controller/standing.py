"""A broker's place in the cluster over all its sessions: registered, and standing for election.

Not what a controller does. A session that expires ends the registration: a new one follows with a
new broker epoch, and orders to the earlier life are refused. A connection that is only lost ends
nothing but what was under way, which is read anew.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from penstock.controller.registration import register_broker
from penstock.controller.run import Controller
from penstock.coordination.election import Election
from penstock.coordination.errors import ConnectionLost, SessionExpired
from penstock.coordination.interface import Session, SessionId, SessionState
from penstock.model.cluster import BrokerEpoch, BrokerNode
from penstock.model.values import dataclass

FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingSetup:
    """What a broker is registered with, and what hears of it."""

    node: BrokerNode  # its epoch is not looked at
    open_session: Callable[[], Awaitable[Session]]
    new_election: Callable[[Session], Election]
    registered: Callable[[Session, BrokerEpoch], None]  # called before any order can come
    wall_ms: Callable[[], int]
    wait_ms: Callable[[int], Awaitable[None]]
    report: Callable[[str], None]


class Standing:
    """`run` is its task. `join` first, with the first session: a start that fails is told there."""

    def __init__(self, setup: StandingSetup) -> None:
        self._setup = setup
        self._own_sessions: deque[SessionId] = deque(maxlen=10)  # some may not have expired yet
        self._is_closing = False
        self._stirred = asyncio.Event()  # the session's state has changed, or all is to end

    async def join(self, session: Session) -> None:
        """Register; BrokerIdTaken where another process has this id."""
        earlier = tuple(self._own_sessions)
        self._own_sessions.append(session.id)
        epoch = await register_broker(
            session, self._setup.node, now_ms=self._setup.wall_ms(), own_sessions=earlier
        )
        self._setup.registered(session, epoch)

    async def run(self, controller: Controller, session: Session) -> None:
        """Until `close`; from a session that has joined on, over all that follow."""
        while not self._is_closing:
            try:
                await self._stand(controller, session)
            except SessionExpired:
                if not self._is_closing:
                    self._setup.report("the session has expired; the broker registers anew")
                    session = await self._rejoin(controller)

    async def close(self, controller: Controller) -> None:
        """Have `run` end; the registration ends with the session, which is its owner's to close."""
        self._is_closing = True
        self._stirred.set()
        await controller.close()

    async def _stand(self, controller: Controller, session: Session) -> None:
        """Until the controller is closed, or the session has expired."""
        session.listen(lambda _: self._stirred.set())
        while True:
            if await _is_expired(controller.run()):
                raise SessionExpired(session.id)
            while session.state is SessionState.SUSPENDED and not self._is_closing:
                self._stirred.clear()
                await self._stirred.wait()
            if self._is_closing:
                return
            if session.state is SessionState.ENDED:
                raise SessionExpired(session.id)
            await self._setup.wait_ms(FIRST_PAUSE_MS)

    async def _rejoin(self, controller: Controller) -> Session:
        pause_ms = FIRST_PAUSE_MS
        while True:
            try:
                session = await self._setup.open_session()
                await self.join(session)
            except (ConnectionLost, SessionExpired) as error:
                self._setup.report(f"no new session yet ({error}); trying again")
                await self._setup.wait_ms(pause_ms)
                pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            else:
                controller.renew(session, self._setup.new_election(session))
                return session


async def _is_expired(run: Coroutine[Any, Any, None]) -> bool:
    """Whether that ended because the session has; where only the connection was lost, it may go on.
    Whatever else ends it is raised."""
    try:
        await run
    except ConnectionLost:
        return False
    except SessionExpired:
        return True
    except BaseExceptionGroup as group:
        lost, rest = group.split((ConnectionLost, SessionExpired))
        if rest is not None:
            raise
        return lost is not None and lost.subgroup(SessionExpired) is not None
    return False
