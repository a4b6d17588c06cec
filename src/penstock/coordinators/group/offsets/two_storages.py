"""The group coordinator with both storages of committed offsets: the log and ZooKeeper.

Groups and members stay in the log, and the group decides who may commit. `offsets.storage` says
where offsets are read and written, `dual.commit.enabled` has commits written to both. A group's
first fetch here migrates what only the other storage has (`migration`), so that a switch keeps all
offsets. Invariant: an offset is answered as missing only if ZooKeeper has answered, too, or is
known to have none of the group.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator, matches
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.offsets.commands import (
    NO_OFFSET,
    Codes,
    check_offset,
    refuse_commit,
)
from penstock.coordinators.group.offsets.migration import Migration, MigrationRule
from penstock.coordinators.group.offsets.zookeeper_offsets import OffsetsStore, can_be_named
from penstock.coordinators.group.requests import (
    CommitInTransaction,
    CommitOffsets,
    DescribedGroup,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    GroupSummary,
)
from penstock.coordinators.group.shard import GroupShard
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import MetadataStoreError
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

EMPTY = "Empty"
MAX_NAMED = 10  # partitions in a log line
_UNREACHABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE  # ZooKeeper cannot be reached: retry


class _Unreachable(Exception):
    """ZooKeeper did not answer; it has been logged."""


class TwoStorageGroupCoordinator(GroupCoordinator):
    def __init__(
        self,
        *,
        store: OffsetsStore,
        log: CoordinatorLog,
        topics: Topics,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], GroupConfig],
        logger: EventLogger,
    ) -> None:
        super().__init__(
            log=log, topics=topics, timers=timers, wall_ms=wall_ms, config=config, logger=logger
        )
        self._store = store
        self._topics = topics
        self.is_in_zookeeper = config().offsets_storage == "zookeeper"
        # Groups whose offsets this leadership has migrated.
        self._migrated: WeakKeyDictionary[GroupShard, set[str]] = WeakKeyDictionary()
        # One migration or deletion of a group at a time.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        self._start(self._list_early(), "list groups in ZooKeeper")
        await super().run()

    async def _list_early(self) -> None:
        """So that groups without offsets in ZooKeeper do not need it when it fails later."""
        try:
            async with self._zookeeper():
                await self._store.may_have("")
        except _Unreachable:
            return

    @property
    def _is_dual(self) -> bool:
        return self._config().dual_commit_enabled

    # -- committing ------------------------------------------------------------------------

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]:
        """A dual commit writes the log first, which checks the member once more."""
        if not (self.is_in_zookeeper or self._is_dual):
            return await super().commit(request)
        is_named = can_be_named(request.group)
        if self.is_in_zookeeper and not is_named:
            return refuse_commit(request, ErrorCode.INVALID_GROUP_ID)
        if self.is_in_zookeeper and not self._is_dual:
            codes = await self._check_commit(request)
        else:
            codes = await super().commit(request)
        if not is_named:  # so it is not read there either
            return codes
        accepted = [offset for offset in request.offsets if codes[offset.tp] is ErrorCode.NONE]
        try:
            async with self._zookeeper():
                await self._store.commit(request.group, accepted)
        except _Unreachable:
            return {**codes, **{offset.tp: _UNREACHABLE for offset in accepted}}
        return codes

    async def _check_commit(self, request: CommitOffsets) -> Codes:
        reply = await self._run(
            request.group,
            lambda state, _, now_ms: CoordinatorResult(
                reply=state.check_commit(request), timers=state.session_timer(request)
            ),
        )
        refusal = reply.code if isinstance(reply, Failed) else reply
        if refusal is not ErrorCode.NONE:
            return refuse_commit(request, refusal)
        config = self._config()
        return {offset.tp: check_offset(offset, self._topics, config) for offset in request.offsets}

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Refused in ZooKeeper, where a marker in the log has no effect. No other code that
        clients handle here says so."""
        if self.is_in_zookeeper:
            return refuse_commit(request.commit, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        return await super().commit_in_transaction(request)

    # -- fetching --------------------------------------------------------------------------

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        is_named = can_be_named(request.group)
        if self.is_in_zookeeper and not is_named:
            return FetchedOffsets(error=ErrorCode.INVALID_GROUP_ID)
        fetched = await super().fetch(request)  # whether this broker coordinates the group
        if fetched.error is not ErrorCode.NONE or not is_named:
            return fetched
        try:
            if self.is_in_zookeeper:
                fetched = await self._fetch_from_zookeeper(request, fetched)
            elif self._is_dual or not self._is_migrated(request.group):
                fetched = await self._fetch_from_log(request, fetched)
        except _Unreachable:
            return FetchedOffsets(error=ErrorCode.NOT_COORDINATOR)
        self._warn_of_missing(request, fetched)
        return fetched

    async def _fetch_from_zookeeper(
        self, request: FetchOffsets, logged: FetchedOffsets
    ) -> FetchedOffsets:
        """An offset that a transaction has pending in the log, and ZooKeeper has not, is
        unstable."""
        refusal = await self._migrate(request.group)
        if refusal is not ErrorCode.NONE:
            return FetchedOffsets(error=refusal)
        async with self._zookeeper():
            stored = await self._store.find_offsets(request.group, request.partitions)
        partitions = request.partitions if request.partitions is not None else sorted(stored)
        return FetchedOffsets(
            error=ErrorCode.NONE,
            offsets=tuple(
                FetchedOffset(tp, stored[tp].offset if tp in stored else NO_OFFSET, -1, "")
                for tp in partitions
            ),
            unstable=frozenset(tp for tp in logged.unstable if tp not in stored),
        )

    async def _fetch_from_log(
        self, request: FetchOffsets, fetched: FetchedOffsets
    ) -> FetchedOffsets:
        async with self._zookeeper():
            if not await self._store.may_have(request.group):
                return fetched
        refusal = await self._migrate(request.group)
        if refusal is not ErrorCode.NONE:
            return FetchedOffsets(error=refusal)
        return await super().fetch(request)

    def _warn_of_missing(self, request: FetchOffsets, fetched: FetchedOffsets) -> None:
        """Only where ZooKeeper has offsets of some group, or is meant to: else the group is just
        new, and there is nothing that it could have lost."""
        missing = [
            offset.tp
            for offset in fetched.offsets
            if offset.offset == NO_OFFSET and offset.tp not in fetched.unstable
        ]
        if missing and (self.is_in_zookeeper or self._is_dual or self._store.has_some):
            self._notes.warning(
                "offsets_not_found",
                request.group,
                f"group {request.group!r} has no committed offset of {len(missing)} partitions, "
                "neither in the log nor in ZooKeeper; its clients start where auto.offset.reset "
                "says",
                group=request.group,
                count=len(missing),
                partitions=missing[:MAX_NAMED],
            )

    # -- migration -------------------------------------------------------------------------

    def _is_migrated(self, group: str) -> bool:
        shard = self._find_shard(group)
        return isinstance(shard, GroupShard) and group in self._migrated.get(shard, ())

    async def _migrate(self, group: str) -> ErrorCode:
        """Once in a leadership; each time with dual commits, or while the group has members in
        ZooKeeper, because others may commit to either.

        It may stop anywhere: what it has written is right, and the next fetch does the rest.
        """
        if self._is_migrated(group) and not self._is_dual:
            return ErrorCode.NONE
        async with self._lock(group):
            shard = self._find_shard(group)
            if isinstance(shard, ErrorCode):
                return ErrorCode.NOT_COORDINATOR
            async with self._zookeeper():
                znodes = await self._store.find_offsets(group, None)
            rule = MigrationRule(self.is_in_zookeeper, self._is_dual)
            reply = await self._run(
                group, lambda state, _, now_ms: state.migrate_offsets(group, znodes, rule, now_ms)
            )
            if isinstance(reply, Failed):
                return ErrorCode.NOT_COORDINATOR
            async with self._zookeeper():
                await self._store.put_migrated(group, reply.to_zookeeper)
                has_members = await self._store.has_members(group)
            if not has_members:
                self._migrated.setdefault(shard, set()).add(group)
        self._report(group, reply)
        return ErrorCode.NONE

    def _report(self, group: str, migration: Migration) -> None:
        for count, source, target in (
            (migration.to_log, "ZooKeeper", "the log"),
            (len(migration.to_zookeeper), "the log", "ZooKeeper"),
        ):
            if count:
                self._notes.info(
                    "offsets_migrated",
                    group,
                    f"{count} committed offsets of group {group!r} from {source} to {target}",
                    group=group,
                    count=count,
                    source=source,
                    target=target,
                )

    def _lock(self, group: str) -> asyncio.Lock:
        lock = self._locks.get(group)
        if lock is None:
            lock = self._locks[group] = asyncio.Lock()
        return lock

    # -- deleting --------------------------------------------------------------------------

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Codes]:
        """From both storages, because a migration would bring back what the other one keeps."""
        async with self._lock(group):
            code, codes = await super().delete_offsets(group, partitions)
            try:
                async with self._zookeeper():
                    if code is ErrorCode.GROUP_ID_NOT_FOUND and await self._has_offsets(group):
                        code, codes = ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.NONE)
                    if code is ErrorCode.NONE and await self._may_have(group):
                        deleted = [tp for tp in partitions if codes[tp] is ErrorCode.NONE]
                        await self._store.delete(group, deleted)
            except _Unreachable:
                return _UNREACHABLE, {}
            return code, codes

    async def delete_group(self, group: str) -> ErrorCode:
        async with self._lock(group):
            code = await super().delete_group(group)
            if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return code
            try:
                async with self._zookeeper():
                    if not await self._has_offsets(group):
                        return code
                    await self._store.delete_all(group)
            except _Unreachable:
                return _UNREACHABLE
            return ErrorCode.NONE

    def on_topics_deleted(self, topics: Sequence[str]) -> None:
        super().on_topics_deleted(topics)
        self._start(self._delete_topics(tuple(topics)), "delete offsets of topics")

    async def _delete_topics(self, topics: tuple[str, ...]) -> None:
        try:
            async with self._zookeeper():
                await self._store.delete_topics(topics)
        except _Unreachable:
            return

    # -- queries ---------------------------------------------------------------------------

    async def describe(self, group: str) -> DescribedGroup:
        described = await super().describe(group)
        if described.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            return described
        try:
            async with self._zookeeper():
                has_offsets = await self._has_offsets(group)
        except _Unreachable:
            return DescribedGroup(group=group, error=_UNREACHABLE)
        if has_offsets:
            return DescribedGroup(group=group, error=ErrorCode.NONE, state=EMPTY)
        return described

    async def list_groups(
        self, states: frozenset[str], kinds: frozenset[str]
    ) -> tuple[ErrorCode, list[GroupSummary]]:
        code, listings = await super().list_groups(frozenset(), frozenset())
        listed = {listing.group for listing in listings}
        try:
            async with self._zookeeper():
                names = await self._store.groups()
        except _Unreachable:
            return _UNREACHABLE, []
        listings += [
            GroupSummary(name, "", EMPTY, "classic")
            for name in names
            if name not in listed and not isinstance(self._find_shard(name), ErrorCode)
        ]
        return code, [listing for listing in listings if matches(listing, states, kinds)]

    async def _may_have(self, group: str) -> bool:
        """A broker that commits to ZooKeeper cannot rely on the names that it read before."""
        is_written = self.is_in_zookeeper or self._is_dual
        return can_be_named(group) and (is_written or await self._store.may_have(group))

    async def _has_offsets(self, group: str) -> bool:
        return await self._may_have(group) and await self._store.has_group(group)

    @asynccontextmanager
    async def _zookeeper(self) -> AsyncIterator[None]:
        """Bounds the wait for ZooKeeper, and logs why it is not available."""
        timeout_ms = self._config().offsets_commit_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                yield
        except (MetadataStoreError, TimeoutError) as error:
            why = str(error) or f"no answer within offsets.commit.timeout.ms={timeout_ms}"
            self._notes.warning(
                "offsets_not_available",
                "",
                f"committed offsets in ZooKeeper are not available, and clients retry: {why}",
            )
            raise _Unreachable from error
