"""Keeps the broker registered and standing for election, over any number of ZooKeeper sessions.

The elected controller's work is in `controller`. A lost connection is waited for; an expired
session is replaced, and the broker registers again with a new broker epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.controller.broker_registration import controller_election, register_broker
from penstock.controller.controller import Controller
from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.election import Election
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import MetadataStore, Session, SessionId, SessionState
from penstock.metadata_store.session_statistics import SessionCounters
from penstock.model.cluster import BrokerEpoch, BrokerId, BrokerNode, Endpoint
from penstock.server.config import ServerConfig
from penstock.server.context import BrokerContext
from penstock.server.current_session import CurrentSession
from penstock.server.incarnation import BrokerIncarnation
from penstock.server.metadata_store import BrokerMetadataStore

RETRY_PAUSE_S = 0.2

# Registers the broker with a session; the list has the sessions of its earlier registrations.
Register = Callable[[Session, list[SessionId]], Awaitable[None]]


class BrokerRegistration:
    """`run` is a task of the broker; it ends when the controller is closed."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        store: MetadataStore,
        session: CurrentSession,
        controller: Controller,
        register: Register,
        make_election: Callable[[Session], Election],
        logger: EventLogger,
        counters: SessionCounters | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._session = session
        self._controller = controller
        self._register = register
        self._make_election = make_election
        self._logger = logger
        self._own_sessions: list[SessionId] = []
        self._is_registered = False
        self._state_changed = asyncio.Event()  # of the session
        self._counters = counters or SessionCounters()
        self._counters.on_opened()
        session.current.listen(self._on_state)

    async def run(self) -> None:
        while not self._controller.is_closing:
            try:
                if not self._is_registered:
                    await self.register()
                await self._controller.run()
            except ConnectionLoss:
                _raise_if_cancelled()
                await self._wait_connected()
            except SessionExpired:
                _raise_if_cancelled()
                self._is_registered = False
                await self.replace_session()

    async def register(self) -> None:
        await self._register(self._session.current, self._own_sessions)
        self._own_sessions = [self._session.id]
        self._is_registered = True

    async def _wait_connected(self) -> None:
        """Wait until connected or expired; the pause prevents a busy loop if the link flaps."""
        await asyncio.sleep(RETRY_PAUSE_S)
        while self._session.state is SessionState.SUSPENDED and not self._controller.is_closing:
            self._state_changed.clear()
            with suppress(TimeoutError):  # the broker may stop meanwhile
                await asyncio.wait_for(self._state_changed.wait(), RETRY_PAUSE_S)

    async def replace_session(self) -> None:
        self._counters.on_expired()
        self._logger.warning(
            "session_expired", f"ZooKeeper session expired; re-registering broker {self._broker_id}"
        )
        while not self._controller.is_closing:
            try:
                session = await self._store.open_session()
            except ConnectionLoss:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            self._counters.on_opened()
            session.listen(self._on_state)
            self._session.current = session
            self._controller.renew(session, self._make_election(session))
            return

    def _on_state(self, state: SessionState) -> None:
        self._counters.on_state(state)
        self._state_changed.set()


def _raise_if_cancelled() -> None:
    """A resignation that fails on the way out replaces the CancelledError that caused it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def build_registration(
    context: BrokerContext,
    *,
    store: BrokerMetadataStore,
    controller: Controller,
    handler: ControllerRequestHandler,
    endpoints: tuple[Endpoint, ...],
    incarnation: BrokerIncarnation | None,  # None: a single broker, which has no other replicas
) -> BrokerRegistration:
    logger = context.get_logger("metadata_store")

    async def register(session: Session, own_sessions: list[SessionId]) -> None:
        if incarnation is not None:
            await incarnation.record(session)
        node = BrokerNode(
            id=context.broker_id,
            epoch=BrokerEpoch(-1),
            endpoints=endpoints,
            rack=ServerConfig.from_broker(context.config()).rack,
        )
        epoch = await register_broker(
            session, node, now_ms=context.wall_ms(), own_sessions=own_sessions
        )
        handler.set_broker_epoch(epoch)
        logger.info(
            "broker_registered", f"registered with broker epoch {epoch}", broker_epoch=epoch
        )

    return BrokerRegistration(
        broker_id=context.broker_id,
        store=store.store,
        session=store.session,
        controller=controller,
        register=register,
        make_election=lambda session: make_election(context, session),
        logger=logger,
        counters=store.counters,
    )


def make_election(context: BrokerContext, session: Session) -> Election:
    policy = ServerConfig.from_broker(context.config()).controller_election
    return controller_election(session, context.broker_id, now_ms=context.wall_ms(), policy=policy)
