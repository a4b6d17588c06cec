"""A broker's standing in its cluster: session, registration and candidacy, over any sessions.

What is done with a leadership is the controller's. A connection that is lost is waited for; a
session that has ended is followed by another, and with it the broker has a new epoch: a new life.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.controller.controller import Controller
from penstock.metadata_store.election import Election
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import MetadataStore, Session, SessionId, SessionState
from penstock.server.current_session import CurrentSession

RETRY_PAUSE_S = 0.2

# Registers the broker with a session; `own` are those of its earlier lives.
Register = Callable[[Session, list[SessionId]], Awaitable[None]]


class BrokerRegistration:
    """`run` is a task of the broker; it ends when the controller is closed."""

    def __init__(
        self,
        *,
        coordination: MetadataStore,
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
        self._stirred = asyncio.Event()  # the session's state has changed
        session.current.listen(self._on_state)

    async def run(self) -> None:
        while not self._controller.is_closing:
            try:
                if not self._is_registered:
                    await self.register()
                await self._controller.run()
            except ConnectionLoss:
                await self._wait_connected()
            except SessionExpired:
                self._is_registered = False
                await self.open_another()

    async def register(self) -> None:
        await self._register(self._session.current, self._own_sessions)
        self._own_sessions = [self._session.id]
        self._is_registered = True

    async def _wait_connected(self) -> None:
        """Or until the session has ended; one that comes and goes is not asked in a spin."""
        await asyncio.sleep(RETRY_PAUSE_S)
        while self._session.state is SessionState.SUSPENDED and not self._controller.is_closing:
            self._stirred.clear()
            with suppress(TimeoutError):  # the broker may stop meanwhile
                await asyncio.wait_for(self._stirred.wait(), RETRY_PAUSE_S)

    async def open_another(self) -> None:
        self._report("the session with the tree has ended: registering anew")
        while not self._controller.is_closing:
            try:
                session = await self._coordination.open_session()
            except ConnectionLoss:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            session.listen(self._on_state)
            self._session.current = session
            self._controller.renew(session, self._make_election(session))
            return

    def _on_state(self, state: SessionState) -> None:
        self._stirred.set()
