"""The group coordinator of a broker with `offsets.storage=zookeeper`.

Groups and members stay in the log, and the group still decides who may commit; only the offsets are
kept elsewhere. Offsets committed to the log before are neither read nor changed.
"""

from collections.abc import Callable, Mapping, Sequence

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator, matches
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.offsets.commands import Codes, check_offset, refuse_commit
from penstock.coordinators.group.offsets.zookeeper_offsets import OffsetsStore, can_be_named
from penstock.coordinators.group.requests import (
    CommitInTransaction,
    CommitOffsets,
    DescribedGroup,
    FetchedOffsets,
    FetchOffsets,
    GroupSummary,
)
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import MetadataStoreError
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

EMPTY = "Empty"
_UNREACHABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE  # ZooKeeper cannot be reached: retry


class ZooKeeperGroupCoordinator(GroupCoordinator):
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

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]:
        refusal = await self._find_refusal(request)
        if refusal is not ErrorCode.NONE:
            return refuse_commit(request, refusal)
        config = self._config()
        codes = {
            offset.tp: check_offset(offset, self._topics, config) for offset in request.offsets
        }
        accepted = [offset for offset in request.offsets if codes[offset.tp] is ErrorCode.NONE]
        try:
            await self._store.commit(request.group, accepted)
        except MetadataStoreError as error:
            self._warn(error)
            codes.update({offset.tp: _UNREACHABLE for offset in accepted})
        return codes

    async def _find_refusal(self, request: CommitOffsets) -> ErrorCode:
        if not can_be_named(request.group):
            return ErrorCode.INVALID_GROUP_ID
        reply = await self._run(
            request.group,
            lambda state, _, now_ms: CoordinatorResult(
                reply=state.check_commit(request), timers=state.session_timer(request)
            ),
        )
        return reply.code if isinstance(reply, Failed) else reply

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Refused, because a marker in the log has no effect in ZooKeeper. No other code that
        clients handle here says so."""
        return refuse_commit(request.commit, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        if not can_be_named(request.group):
            return FetchedOffsets(error=ErrorCode.INVALID_GROUP_ID)
        checked = await super().fetch(request)  # whether this broker coordinates the group
        if checked.error is not ErrorCode.NONE:
            return checked
        try:
            offsets = await self._store.fetch(request.group, request.partitions)
        except MetadataStoreError as error:
            self._warn(error)
            return FetchedOffsets(error=ErrorCode.NOT_COORDINATOR)
        return FetchedOffsets(error=ErrorCode.NONE, offsets=offsets)

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Codes]:
        code, codes = await super().delete_offsets(group, partitions)
        try:
            if code is ErrorCode.GROUP_ID_NOT_FOUND and await self._has_offsets(group):
                code, codes = ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.NONE)
            if code is ErrorCode.NONE:
                deleted = [tp for tp in partitions if codes[tp] is ErrorCode.NONE]
                await self._store.delete(group, deleted)
        except MetadataStoreError as error:
            self._warn(error)
            return _UNREACHABLE, {}
        return code, codes

    async def delete_group(self, group: str) -> ErrorCode:
        code = await super().delete_group(group)
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return code
        try:
            if not await self._has_offsets(group):
                return code
            offsets = await self._store.fetch(group, None)
            await self._store.delete(group, [offset.tp for offset in offsets])
        except MetadataStoreError as error:
            self._warn(error)
            return _UNREACHABLE
        return ErrorCode.NONE

    async def describe(self, group: str) -> DescribedGroup:
        described = await super().describe(group)
        if described.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            return described
        try:
            has_offsets = await self._has_offsets(group)
        except MetadataStoreError as error:
            self._warn(error)
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
            names = await self._store.groups()
        except MetadataStoreError as error:
            self._warn(error)
            return _UNREACHABLE, []
        listings += [
            GroupSummary(name, "", EMPTY, "classic")
            for name in names
            if name not in listed and not isinstance(self._find_shard(name), ErrorCode)
        ]
        return code, [listing for listing in listings if matches(listing, states, kinds)]

    def on_topics_deleted(self, topics: Sequence[str]) -> None:
        super().on_topics_deleted(topics)
        self._start(self._delete_topics(tuple(topics)), "delete offsets of topics")

    async def _delete_topics(self, topics: tuple[str, ...]) -> None:
        try:
            await self._store.delete_topics(topics)
        except MetadataStoreError as error:
            self._warn(error)

    async def _has_offsets(self, group: str) -> bool:
        return can_be_named(group) and await self._store.has_group(group)

    def _warn(self, error: MetadataStoreError) -> None:
        self._logger.warning(
            "offsets_not_available", f"committed offsets in ZooKeeper are not available: {error}"
        )
