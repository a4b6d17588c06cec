"""Commands on committed offsets, as pure functions from the store to records and replies.

The group has allowed them already. Changes no store.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.records import NO_TIME, GroupRecord, OffsetKey, OffsetValue
from penstock.coordinators.group.requests import (
    CommitOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    OffsetCommit,
)
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

NO_OFFSET = -1
END_OF_TIME_MS = 2**63 - 1  # an old client may ask for a longer retention
MAX_TEXT_BYTES = 32_767  # of a string in a record
Codes = Mapping[TopicPartition, ErrorCode]


# -- committing ----------------------------------------------------------------------------


def commit(
    request: CommitOffsets, *, topics: Topics, now_ms: int, config: GroupConfig
) -> CoordinatorResult[Codes, GroupRecord]:
    """Commit each offset on its own: the refusal of one does not affect the others."""
    codes = {offset.tp: check_offset(offset, topics, config) for offset in request.offsets}
    return CoordinatorResult(
        reply=codes,
        records=tuple(
            GroupRecord(_key(request.group, offset.tp), to_value(offset, now_ms))
            for offset in request.offsets
            if codes[offset.tp] is ErrorCode.NONE
        ),
    )


def refuse_commit(request: CommitOffsets, code: ErrorCode) -> Codes:
    return dict.fromkeys((offset.tp for offset in request.offsets), code)


def check_offset(commit: OffsetCommit, topics: Topics, config: GroupConfig) -> ErrorCode:
    topic, partition = commit.tp
    view = topics.find(topic)
    if view is None or not 0 <= partition < view.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if commit.topic_id is not None and commit.topic_id != view.topic_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if _is_too_long(commit.metadata, config.offset_metadata_max_bytes):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _is_too_long(metadata: str, limit: int) -> bool:
    if len(metadata) > limit:
        return True
    return len(metadata) * 4 > MAX_TEXT_BYTES and len(metadata.encode()) > MAX_TEXT_BYTES


def to_value(commit: OffsetCommit, now_ms: int) -> OffsetValue:
    return OffsetValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        committed_ms=now_ms if commit.timestamp_ms is None else commit.timestamp_ms,
        expires_ms=NO_TIME if commit.expires_ms is None else min(commit.expires_ms, END_OF_TIME_MS),
    )


# -- fetching ------------------------------------------------------------------------------


def fetch(store: OffsetStore, request: FetchOffsets) -> FetchedOffsets:
    """A partition without committed offset gets NO_OFFSET, not an error."""
    group = request.group
    pending = store.pending_of(group) if request.require_stable else set()
    if request.partitions is None:
        fetched = [_fetched(tp, value) for tp, value in store.of_group(group)]
    else:
        fetched = [_fetched(tp, store.find(group, tp)) for tp in request.partitions]
    unstable = frozenset(pending.intersection(offset.tp for offset in fetched))
    offsets = tuple(
        _fetched(offset.tp, None) if offset.tp in unstable else offset for offset in fetched
    )
    return FetchedOffsets(error=ErrorCode.NONE, offsets=offsets, unstable=unstable)


def _fetched(tp: TopicPartition, value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(tp, NO_OFFSET, -1, "")
    return FetchedOffset(tp, value.offset, value.leader_epoch, value.metadata)


# -- deleting ------------------------------------------------------------------------------


def delete_offsets(
    store: OffsetStore,
    group: str,
    partitions: Sequence[TopicPartition],
    *,
    check_topic: Callable[[str], ErrorCode],
) -> tuple[Codes, tuple[GroupRecord, ...]]:
    """Offsets of a topic that members may be reading stay; a missing offset counts as deleted."""
    codes = {tp: check_topic(tp.topic) for tp in partitions}
    present = _present(store, group)
    deleted = (tp for tp, code in codes.items() if code is ErrorCode.NONE and tp in present)
    return codes, tombstones(group, deleted)


def delete_all(store: OffsetStore, group: str) -> tuple[GroupRecord, ...]:
    return tombstones(group, _present(store, group))


def delete_of_topics(store: OffsetStore, topics: Collection[str]) -> tuple[GroupRecord, ...]:
    """Delete all offsets of deleted topics, because a new topic of that name starts afresh."""
    return tuple(
        GroupRecord(_key(group, tp), None)
        for group in sorted(store.groups())
        for tp in sorted(_present(store, group))
        if tp.topic in topics
    )


def tombstones(group: str, partitions: Iterable[TopicPartition]) -> tuple[GroupRecord, ...]:
    return tuple(GroupRecord(_key(group, tp), None) for tp in partitions)


def _present(store: OffsetStore, group: str) -> set[TopicPartition]:
    return store.pending_of(group).union(tp for tp, _ in store.of_group(group))


def _key(group: str, tp: TopicPartition) -> OffsetKey:
    return OffsetKey(group, *tp)
