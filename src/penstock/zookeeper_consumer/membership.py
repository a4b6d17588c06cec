"""Keeps one member in its group over any number of ZooKeeper sessions, on a thread of its own.

What a member does in one session is `session_member`'s. Invariant: nothing is read between the end
of a session, as this machine's clock bounds it, and the claims of the next one.
"""

import asyncio
import math
import threading
import time
from contextlib import suppress

from penstock.client.errors import ClientClosed, ConsumeFailed, ZooKeeperUnavailable
from penstock.logs.event_logger import message_logger
from penstock.logs.levels import INFO
from penstock.metadata_store.errors import (
    ConnectionLoss,
    DamagedZnode,
    MetadataStoreError,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from penstock.metadata_store.interface import Session, SessionState
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.group_znodes import CONSUMERS
from penstock.zookeeper_consumer.member_config import MemberConfig, MemberStatistics
from penstock.zookeeper_consumer.member_state import LOG, SharedMemberState
from penstock.zookeeper_consumer.partition_reader import PartitionReader
from penstock.zookeeper_consumer.session_member import SessionMember

_REOPEN_S = 1.0  # between attempts to open another session
_SETTLE_S = 0.01  # between looks at a session that is not connected


class GroupMembership:
    """Its methods may be called by any thread, those below `_run` only by its own."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self._state = SharedMemberState(config, self._holds_lease)
        self._registered = threading.Event()  # or failed
        self._failure: BaseException | None = None
        self._closing = asyncio.Event()
        self._session: ZooKeeperSession | None = None
        self._member: SessionMember | None = None
        self._store: ZooKeeperMetadataStore | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run_thread, name="zookeeper-consumer", daemon=True
        )

    def start(self) -> None:
        """Returns when the member is registered; ConsumeFailed says why it cannot be."""
        self._thread.start()
        self._registered.wait()
        self.raise_failure()

    @property
    def reader(self) -> PartitionReader | None:
        """None until a broker was seen."""
        return self._state.reader

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def unconfirmed_s(self) -> float:
        """For how long the session may have been over."""
        session = self._session
        return math.inf if session is None else time.monotonic() - session.lease_until_s

    def owned(self) -> set[TopicPartition]:
        member = self._member
        return set() if member is None else set(member.owned)

    def commit(self) -> None:
        """What the reader has done; ConsumeFailed."""
        try:
            asyncio.run_coroutine_threadsafe(self._commit(), self._loop).result()
        except RuntimeError as error:  # the loop is closed
            self.raise_failure()
            raise ClientClosed("the consumer is closed; create a new one") from error

    def close(self) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._begin_close)
        self._thread.join()

    def statistics(self) -> MemberStatistics:
        state, store = self._state, self._store
        return MemberStatistics(
            consumer_id=self._config.consumer_id,
            sessions=state.sessions,
            rebalances=state.rebalances,
            conflicts=state.conflicts,
            watch_events=state.watch_events,
            zookeeper_requests=0 if store is None else store.latency.snapshot().total,
            commits=state.commits,
            owned=frozenset(map(str, self.owned())),
        )

    def _holds_lease(self) -> bool:
        """ZooKeeper cannot have given this member's partitions away yet, even if this process was
        stopped until now."""
        session = self._session
        return session is not None and time.monotonic() < session.lease_until_s

    # -- on the thread -------------------------------------------------------------------------

    def _run_thread(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run())
        except BaseException as error:
            self._failure = _explain(error, self._config)
            if not isinstance(self._failure, ConsumeFailed):
                LOG.exception("the membership of %s has failed", self._config.consumer_id)
        finally:
            self._session = None
            self._registered.set()
            if self._state.reader is not None:
                self._state.reader.close()

    async def _run(self) -> None:
        logger = message_logger(LOG.info, INFO)
        self._store = await ZooKeeperMetadataStore.open(self._config.zookeeper, logger=logger)
        try:
            while not self._closing.is_set():
                session = await self._open_session(self._store)
                if session is not None:
                    await self._run_session(session)
        finally:
            await self._store.close()

    async def _open_session(self, store: ZooKeeperMetadataStore) -> ZooKeeperSession | None:
        """None: not yet, or the member is being closed; only the first one must succeed."""
        opening = asyncio.ensure_future(store.open_session())
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait((opening, closing), return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not opening.done():
            opening.cancel()
            return None
        try:
            return opening.result()
        except ConnectionLoss as error:
            if not self._registered.is_set():
                raise
            LOG.warning("no new ZooKeeper session yet: %s", error)
            await asyncio.sleep(_REOPEN_S)
            return None

    async def _run_session(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._state.sessions += 1
        self._member = member = SessionMember(self._config, self._state, session)
        session.listen(lambda state: member.wake())
        try:
            await self._stay(session, member)
            if self._config.forgets_group:
                await _delete_below(session, f"{CONSUMERS}/{self._config.group}")
        except SessionExpired:
            LOG.warning("ZooKeeper session %#x has expired; registering again", session.id)
        finally:
            self._member, self._session = None, None
            if self._state.reader is not None:
                await asyncio.to_thread(self._state.reader.stop, 0)
            await session.close()

    async def _stay(self, session: ZooKeeperSession, member: SessionMember) -> None:
        is_registered = False
        next_commit_s = self._next_commit_s()
        while not self._closing.is_set():
            try:
                if not is_registered:
                    await member.register()
                    is_registered = True
                    self._registered.set()
                await member.rebalance()
                if self._closing.is_set():
                    break
                if not await member.wait_for_change(next_commit_s):
                    await self._commit_in_time(member)
                    next_commit_s = self._next_commit_s()
            except ConnectionLoss as error:
                LOG.info("waiting for ZooKeeper: %s", error)
                await self._wait_connected(session, member)
        await member.leave()

    async def _wait_connected(self, session: ZooKeeperSession, member: SessionMember) -> None:
        """Or ended: then the next request says so."""
        while session.state is SessionState.SUSPENDED and not self._closing.is_set():
            await member.wait_for_change(self._loop.time() + _REOPEN_S)
            await asyncio.sleep(_SETTLE_S)

    async def _commit_in_time(self, member: SessionMember) -> None:
        try:
            await member.commit()
        except ConsumeFailed as error:
            LOG.warning("offsets are not committed, and will be later: %s", error)

    def _next_commit_s(self) -> float | None:
        interval_s = self._config.auto_commit_interval_s
        return None if interval_s is None else self._loop.time() + interval_s

    async def _commit(self) -> None:
        try:
            if self._member is not None:  # else its partitions are being lost
                await self._member.commit()
        except MetadataStoreError as error:
            raise ZooKeeperUnavailable(f"cannot commit: {error}") from error

    def _begin_close(self) -> None:
        self._closing.set()
        if self._member is not None:
            self._member.wake()


async def _delete_below(session: Session, path: str) -> None:
    with suppress(NoNode, NotEmpty):  # others have joined
        for name in await session.children(path):
            await _delete_below(session, f"{path}/{name}")
        await session.delete(path)


def _explain(error: BaseException, config: MemberConfig) -> BaseException:
    if isinstance(error, ConnectionLoss):
        return ZooKeeperUnavailable(f"group {config.group!r} cannot be joined: {error}")
    if isinstance(error, MetadataStoreError | DamagedZnode):
        return ConsumeFailed(f"group {config.group!r} cannot be read: {error}")
    return error
