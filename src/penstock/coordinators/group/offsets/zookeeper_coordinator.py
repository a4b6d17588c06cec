"""The group coordinator of a broker that keeps offsets in the coordination tree.

Groups and their members stay in the log, and so does who may commit: only where offsets lie
differs. What was committed in the log before is not seen, and nothing of it is changed.
"""

from collections.abc import Callable, Mapping, Sequence

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.coordinator import GroupCoordinator, is_wanted
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.offsets.commands import Codes, check_offset, refuse_commit
from penstock.coordinators.group.offsets.zookeeper_offsets import OffsetsStore, can_be_named
from penstock.coordinators.group.requests import (
    CommitInTransaction,
    CommitOffsets,
    DescribedGroup,
    FetchedOffsets,
    FetchOffsets,
    GroupListing,
)
from penstock.coordinators.group.result import GroupResult
from penstock.coordinators.runtime.dependencies import CoordinatorLog, CoordinatorTimers
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.metadata_store.errors import MetadataStoreError
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

EMPTY = "Empty"
_AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE  # of a tree that cannot be reached: try again


class ZooKeeperGroupCoordinator(GroupCoordinator):
    def __init__(
        self,
        *,
        keeper: OffsetsStore,
        log: CoordinatorLog,
        topics: Topics,
        timers: CoordinatorTimers,
        wall_ms: Callable[[], int],
        config: Callable[[], GroupConfig],
        report: Callable[[str], None],
    ) -> None:
        super().__init__(
            log=log, topics=topics, timers=timers, wall_ms=wall_ms, config=config, report=report
        )
        self._keeper = keeper
        self._topics = topics
        self._report = report

    async def commit(self, request: CommitOffsets) -> Mapping[TopicPartition, ErrorCode]:
        refusal = await self._find_refusal(request)
        if refusal is not ErrorCode.NONE:
            return refuse_commit(request, refusal)
        config = self._config()
        codes = {
            each.partition: check_offset(each, self._topics, config) for each in request.offsets
        }
        taken = [each for each in request.offsets if codes[each.partition] is ErrorCode.NONE]
        try:
            await self._keeper.commit(request.group, taken)
        except MetadataStoreError as error:
            self._tell(error)
            codes.update({each.partition: _AWAY for each in taken})
        return codes

    async def _find_refusal(self, request: CommitOffsets) -> ErrorCode:
        if not can_be_named(request.group):
            return ErrorCode.INVALID_GROUP_ID
        answer = await self._ask(
            request.group,
            lambda state, _, now_ms: GroupResult(
                answer=state.check_commit(request), timers=state.sign_of_life(request)
            ),
        )
        return answer.code if isinstance(answer, Failed) else answer

    async def commit_in_transaction(
        self, request: CommitInTransaction
    ) -> Mapping[TopicPartition, ErrorCode]:
        """A marker in the log ends nothing in the tree. Of the codes that clients know here this
        is the one that says so."""
        return refuse_commit(request.commit, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)

    async def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        if not can_be_named(request.group):
            return FetchedOffsets(error=ErrorCode.INVALID_GROUP_ID)
        of_log = await super().fetch(request)  # says whether this is the place to ask
        if of_log.error is not ErrorCode.NONE:
            return of_log
        try:
            found = await self._keeper.fetch(request.group, request.partitions)
        except MetadataStoreError as error:
            self._tell(error)
            return FetchedOffsets(error=ErrorCode.NOT_COORDINATOR)
        return FetchedOffsets(error=ErrorCode.NONE, offsets=found)

    async def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Codes]:
        code, codes = await super().delete_offsets(group, partitions)
        try:
            if code is ErrorCode.GROUP_ID_NOT_FOUND and await self._is_kept(group):
                code, codes = ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.NONE)
            if code is ErrorCode.NONE:
                gone = [each for each in partitions if codes[each] is ErrorCode.NONE]
                await self._keeper.delete(group, gone)
        except MetadataStoreError as error:
            self._tell(error)
            return _AWAY, {}
        return code, codes

    async def delete_group(self, group: str) -> ErrorCode:
        code = await super().delete_group(group)
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return code
        try:
            if not await self._is_kept(group):
                return code
            kept = await self._keeper.fetch(group, None)
            await self._keeper.delete(group, [each.partition for each in kept])
        except MetadataStoreError as error:
            self._tell(error)
            return _AWAY
        return ErrorCode.NONE

    async def describe(self, group: str) -> DescribedGroup:
        found = await super().describe(group)
        if found.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            return found
        try:
            is_kept = await self._is_kept(group)
        except MetadataStoreError as error:
            self._tell(error)
            return DescribedGroup(group=group, error=_AWAY)
        if is_kept:
            return DescribedGroup(group=group, error=ErrorCode.NONE, state=EMPTY)
        return found

    async def list_groups(
        self, states: frozenset[str], kinds: frozenset[str]
    ) -> tuple[ErrorCode, list[GroupListing]]:
        code, found = await super().list_groups(frozenset(), frozenset())
        known = {each.group for each in found}
        try:
            kept = await self._keeper.groups()
        except MetadataStoreError as error:
            self._tell(error)
            return _AWAY, []
        found += [
            GroupListing(name, "", EMPTY, "classic")
            for name in kept
            if name not in known and not isinstance(self._find_shard(name), ErrorCode)
        ]
        return code, [each for each in found if is_wanted(each, states, kinds)]

    def on_topics_deleted(self, topics: Sequence[str]) -> None:
        super().on_topics_deleted(topics)
        self._start(self._delete_topics(tuple(topics)), "delete offsets of topics")

    async def _delete_topics(self, topics: tuple[str, ...]) -> None:
        try:
            await self._keeper.delete_topics(topics)
        except MetadataStoreError as error:
            self._tell(error)

    async def _is_kept(self, group: str) -> bool:
        return can_be_named(group) and await self._keeper.has_group(group)

    def _tell(self, error: MetadataStoreError) -> None:
        self._report(f"the tree that keeps committed offsets failed: {error}")
