"""A broker's standing in its cluster: session, registration and candidacy, over any sessions.

What is done with a leadership is the controller's. A connection that is lost is waited for; a
session that has ended is followed by another, and with it the broker has a new epoch: a new life.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.broker.current_session import CurrentSession
from penstock.controller.run import Controller
from penstock.coordination.election import Election
from penstock.coordination.errors import ConnectionLost, SessionExpired
from penstock.coordination.interface import Coordination, Session, SessionId, SessionState

RETRY_PAUSE_S = 0.2

# Registers the broker with a session; `own` are those of its earlier lives.
Register = Callable[[Session, list[SessionId]], Awaitable[None]]


class Standing:
    """`run` is a task of the broker; it ends when the controller is closed."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        session: CurrentSession,
        controller: Controller,
        register: Register,
        make_election: Callable[[Session], Election],
        report: Callable[[str], None],
    ) -> None:
        self._coordination = coordination
        self._session = session
        self._controller = controller
        self._register = register
        self._make_election = make_election
        self._report = report
        self._own_sessions: list[SessionId] = []
        self._is_registered = False

    async def run(self) -> None:
        while True:
            try:
                if not self._is_registered:
                    await self.register()
                await self._controller.run()
                return
            except ConnectionLost:
                await _wait_not_suspended(self._session.current)
            except SessionExpired:
                self._is_registered = False
                await self._open_another()

    async def register(self) -> None:
        await self._register(self._session.current, self._own_sessions)
        self._own_sessions = [self._session.id]
        self._is_registered = True

    async def _open_another(self) -> None:
        self._report("the session with the tree has ended: registering anew")
        while True:
            try:
                session = await self._coordination.open_session()
                break
            except ConnectionLost:
                await asyncio.sleep(RETRY_PAUSE_S)
        self._session.current = session
        self._controller.renew(session, self._make_election(session))


async def _wait_not_suspended(session: Session) -> None:
    changed = asyncio.Event()
    session.listen(lambda state: changed.set())
    while session.state is SessionState.SUSPENDED:
        await changed.wait()
        changed.clear()
    if session.state is SessionState.CONNECTED:
        await asyncio.sleep(
            RETRY_PAUSE_S
        )  # a connection that comes and goes is not asked in a spin
