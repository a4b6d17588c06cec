"""One member during one session: registers, rebalances in five steps, commits.

1 read the group and the brokers, and watch them; 2 stop reading, and commit; 3 release what it
owned; 4 claim its share; 5 read on from the stored offsets. Offsets are fetched after the claim,
because ZooKeeper then shows what the last owner committed before it let go.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from penstock.client.errors import ConsumeFailed, MixedAssignments, RebalanceFailed
from penstock.metadata_store.errors import ConnectionLoss, NodeExists, NoNode
from penstock.metadata_store.interface import WatchEvent
from penstock.metadata_store.paths import parent_of
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.assignment import (
    GroupView,
    RegisteredMember,
    find_conflict,
    share_of,
    without_conflicts,
)
from penstock.zookeeper_consumer.claims import Claims
from penstock.zookeeper_consumer.decisions import next_retry, start_offset
from penstock.zookeeper_consumer.group_znodes import encode_registration, member_path
from penstock.zookeeper_consumer.member_config import MemberConfig
from penstock.zookeeper_consumer.member_state import LOG, SharedMemberState
from penstock.zookeeper_consumer.offsets_storage import (
    DualOffsets,
    KafkaOffsets,
    OffsetsStorage,
    OffsetZnodes,
    ensure_path,
)
from penstock.zookeeper_consumer.partition_reader import PartitionReader
from penstock.zookeeper_consumer.view_reader import ViewReader

_RETRY_AT_ONCE_S = 0.01  # after a conflict that is gone already


class _Failure(NamedTuple):
    """An attempt that did not end with a share."""

    reason: str
    counts: bool  # against rebalance.max.retries: a broker that is away does not


class SessionMember:
    """Owned by the membership's event loop."""

    def __init__(
        self, config: MemberConfig, state: SharedMemberState, session: ZooKeeperSession
    ) -> None:
        self._config = config
        self._state = state
        self._session = session
        self._path = member_path(config.group, config.consumer_id)
        self._claims = Claims(session, config.group)
        self._views = ViewReader(
            session,
            config.group,
            config.registration,
            protocol=config.protocol,
            watch=self._on_event,
        )
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()  # a commit and a change of owners exclude each other
        self._view: GroupView | None = None  # of the last rebalance that ended well

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._claims.owned

    def wake(self) -> None:
        self._changed.set()

    def _on_event(self, event: WatchEvent) -> None:
        self._state.watch_events += 1
        self._changed.set()

    # -- registering -------------------------------------------------------------------------

    async def register(self) -> None:
        """MixedAssignments, before the group has noticed; ConsumeFailed if the id is taken."""
        others = await self._views.read_members()
        self._refuse_mixed(self._config.own_member, others, is_registered=False)
        await ensure_path(self._session, parent_of(self._path))
        deadline = _now_s() + 2 * self._session.statistics().session_timeout_ms / 1000
        data = encode_registration(self._config.registration)
        while True:
            try:
                await self._session.create(self._path, data, ephemeral=True)
                return
            except NodeExists:
                if await self._wait_until_free(deadline):
                    return

    async def _wait_until_free(self, deadline_s: float) -> bool:
        """Whether the znode is this session's own. Otherwise an earlier session of the same
        consumer may have to expire first."""
        self._changed.clear()
        stat = await self._session.exists(self._path, self._on_event)
        if stat is None or stat.ephemeral_owner == self._session.id:
            return stat is not None  # registered by a request whose answer was lost
        if _now_s() >= deadline_s:
            raise ConsumeFailed(
                f"{self._path} belongs to another session: give this consumer another consumer_id"
            )
        await self._wait(deadline_s - _now_s())
        return False

    def _refuse_mixed(
        self, own: RegisteredMember, members: tuple[RegisteredMember, ...], *, is_registered: bool
    ) -> None:
        other = find_conflict(own, members, is_registered=is_registered)
        if other is not None:
            rule = other.registration.rule
            is_named = other.registration.names_rule
            raise MixedAssignments(
                f"group {self._config.group!r} is assigned by {rule}: member {other.id} "
                f"{'uses' if is_named else 'names no rule, and other clients use'} {rule}, this "
                f"one {self._config.rule}; use assignment={rule.value!r}, or another group"
            )

    # -- rebalancing -------------------------------------------------------------------------

    async def rebalance(self) -> None:
        """Until this member has its share of what the group is now. RebalanceFailed when claims
        have conflicted through all retries since the group last changed."""
        failed_view: GroupView | None = None
        failed_since_s = 0.0
        while True:
            self._changed.clear()
            view = await self._read_view()
            failure = await self._attempt(view)
            if failure is None:
                return
            if view != failed_view or not failure.counts:
                failed_view, failed_since_s = view, _now_s()
            await self._back_off(failure, failed_for_s=_now_s() - failed_since_s)

    async def _read_view(self) -> GroupView:
        while True:
            view = await self._views.read()
            own = view.find(self._config.consumer_id)
            if own is not None:
                self._refuse_mixed(own, view.members, is_registered=True)
                return without_conflicts(view, self._config.rule)
            LOG.warning("%s was deleted by somebody else: registering again", self._path)
            await self.register()

    async def _attempt(self, view: GroupView) -> _Failure | None:
        share = share_of(view, self._config.consumer_id, self._config.rule)
        share = share if view.brokers else {}
        if view == self._view and share.keys() == self._claims.owned:
            return None
        self._view = None
        await self._stop_reading()
        async with self._lock:
            await self._commit_before_release()
            await self._claims.release()
            failure = await self._take(view, share)
        if failure is None:
            self._view = view
            self._state.rebalances += 1
            LOG.info("%s reads %s", self._config.consumer_id, [str(tp) for tp in sorted(share)])
        return failure

    async def _stop_reading(self) -> None:
        if self._state.reader is not None:
            await asyncio.to_thread(self._state.reader.stop, self._config.drain_s)

    async def _take(self, view: GroupView, share: Mapping[TopicPartition, str]) -> _Failure | None:
        if not view.brokers:
            LOG.warning("no broker is registered for %s: waiting for one", self._config.protocol)
            return None
        conflict = await self._claims.claim(share)
        if conflict is not None:
            self._state.conflicts += 1
            owner = await self._claims.find_owner(conflict, self._on_event)
            if owner is None:
                self._changed.set()
            holder = "was only just released" if owner is None else f"is still owned by {owner}"
            return _Failure(f"{conflict.path} {holder}", True)
        addresses = self._config.bootstrap_servers or ",".join(view.brokers.values())
        try:
            reader = await asyncio.to_thread(self._state.reader_for, addresses)
            starts = await self._find_starts(reader, frozenset(share))
            await asyncio.to_thread(reader.start, starts)
        except ConsumeFailed as error:
            if error.code is not None and not error.code.is_retriable:
                raise
            await self._claims.release()
            return _Failure(str(error), False)
        return None

    async def _back_off(self, failure: _Failure, *, failed_for_s: float) -> None:
        """Until the claim in the way is released or the group changes, at most a back-off."""
        config = self._config
        session_s = self._session.statistics().session_timeout_ms / 1000
        retry = next_retry(
            failed_for_s=failed_for_s,
            max_retries=config.max_retries,
            backoff_s=config.backoff_s,
            # A paused member's claims last for a session.
            slack_s=max(0.0, session_s + config.backoff_s - config.max_retries * config.backoff_s),
        )
        if retry.gives_up:
            raise RebalanceFailed(
                f"consumer {config.consumer_id} cannot rebalance after {config.max_retries} "
                f"retries in {failed_for_s:.1f} s: {failure.reason}; it has left the group: see "
                f"why that member keeps its partitions, or raise rebalance_max_retries"
            )
        LOG.info("%s tries again to rebalance: %s", config.consumer_id, failure.reason)
        await asyncio.sleep(_RETRY_AT_ONCE_S)
        await self._wait(retry.wait_s)

    # -- between rebalances --------------------------------------------------------------------

    async def wait_for_change(self, next_commit_s: float | None) -> bool:
        """False: the time of the next commit came first."""
        return await self._wait(None if next_commit_s is None else next_commit_s - _now_s())

    async def _wait(self, timeout_s: float | None) -> bool:
        try:
            await asyncio.wait_for(
                self._changed.wait(), None if timeout_s is None else max(0.0, timeout_s)
            )
        except TimeoutError:
            return False
        return True

    # -- offsets -------------------------------------------------------------------------------

    async def commit(self) -> None:
        async with self._lock:
            await self._commit_done()

    async def _commit_before_release(self) -> None:
        if self._config.auto_commit_interval_s is None:
            return
        try:
            await self._commit_done()
        except ConsumeFailed as error:  # Kafka's: the messages since the last commit come again
            LOG.warning("offsets are not committed before a rebalance: %s", error)

    async def _commit_done(self) -> None:
        """What was processed in partitions that are owned now: others belong to their owners."""
        reader, state = self._state.reader, self._state
        if reader is None:
            return
        done = reader.done()
        offsets = {
            tp: offset
            for tp, offset in done.items()
            if tp in self._claims.owned and state.last_stored.get(tp) != offset
        }
        await self._store(reader, offsets)

    async def _store(self, reader: PartitionReader, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets:
            return
        for tp in offsets:
            self._state.last_stored.pop(tp, None)  # unknown until it is answered
        await self._storage(reader).commit(offsets)
        self._state.last_stored |= offsets
        self._state.commits += len(offsets)

    async def _find_starts(
        self, reader: PartitionReader, share: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where there is no offset, the one chosen is committed at once: a member that dies before
        its first commit must not make the next one start later."""
        state, positions = self._state, reader.positions()
        stored = await self._storage(reader).fetch(share)
        starts, chosen = {}, {}
        for tp, offset in stored.items():
            start = start_offset(
                stored=offset, last_stored=state.last_stored.get(tp), position=positions.get(tp)
            )
            if start is None:
                start = chosen[tp] = await self._resolve(reader, tp)
            if offset is not None:
                state.last_stored[tp] = offset
            starts[tp] = start
        await self._store(reader, chosen)
        return starts

    async def _resolve(self, reader: PartitionReader, tp: TopicPartition) -> int:
        config = self._config
        return await asyncio.to_thread(
            reader.resolve,
            tp,
            from_beginning=config.from_beginning,
            timeout_s=config.connect_timeout_s,
        )

    def _storage(self, reader: PartitionReader) -> OffsetsStorage:
        znodes = OffsetZnodes(self._session, self._config.group)
        if not self._config.keeps_in_kafka:
            return znodes
        kafka = KafkaOffsets(reader, self._config.connect_timeout_s)
        return DualOffsets(znodes, kafka) if self._config.keeps_in_zookeeper else kafka

    # -- leaving -------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Commit and let go; what is left ends with the session."""
        await self._stop_reading()
        try:
            async with self._lock:
                await self._commit_before_release()
                await self._claims.release()
            await self._session.delete(self._path)
        except (ConnectionLoss, NoNode) as error:
            LOG.warning("%s leaves its group without a word: %s", self._config.consumer_id, error)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
