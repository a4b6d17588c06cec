"""What commands on committed offsets come to: pure, from the store to records and answers.

Whether the group lets its member do it is asked before, and handed in. Changes no store.
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
from penstock.coordinators.group.result import GroupResult
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

NO_OFFSET = -1
END_OF_TIME_MS = 2**63 - 1  # an old client may ask for a retention that goes beyond
MAX_TEXT_BYTES = 32_767  # of a text in a record
Codes = Mapping[TopicPartition, ErrorCode]


# -- committing ----------------------------------------------------------------------------


def commit(
    request: CommitOffsets, *, topics: Topics, now_ms: int, config: GroupConfig
) -> GroupResult[Codes]:
    """Every offset for itself: one that is refused keeps no other from being kept."""
    codes = {each.partition: check_offset(each, topics, config) for each in request.offsets}
    return GroupResult(
        answer=codes,
        records=tuple(
            GroupRecord(_key(request.group, each.partition), to_value(each, now_ms))
            for each in request.offsets
            if codes[each.partition] is ErrorCode.NONE
        ),
    )


def refuse_commit(request: CommitOffsets, code: ErrorCode) -> Codes:
    return dict.fromkeys((each.partition for each in request.offsets), code)


def check_offset(commit: OffsetCommit, topics: Topics, config: GroupConfig) -> ErrorCode:
    topic, partition = commit.partition
    known = topics.find(topic)
    if known is None or not 0 <= partition < known.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if commit.topic_id is not None and commit.topic_id != known.topic_id:
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
    """What was never committed has no offset; that is no error."""
    group = request.group
    pending = store.pending_of(group) if request.require_stable else set()
    if request.partitions is None:
        found = [_committed(partition, value) for partition, value in store.of_group(group)]
    else:
        found = [_committed(each, store.find(group, each)) for each in request.partitions]
    unstable = frozenset(pending.intersection(each.partition for each in found))
    offsets = tuple(
        _committed(each.partition, None) if each.partition in unstable else each for each in found
    )
    return FetchedOffsets(error=ErrorCode.NONE, offsets=offsets, unstable=unstable)


def _committed(partition: TopicPartition, value: OffsetValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(partition, NO_OFFSET, -1, "")
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata)


# -- deleting ------------------------------------------------------------------------------


def delete_offsets(
    store: OffsetStore,
    group: str,
    partitions: Sequence[TopicPartition],
    *,
    check_topic: Callable[[str], ErrorCode],
) -> GroupResult[Codes]:
    """What members may be reading stays; what is not there counts as deleted."""
    codes = {each: check_topic(each.topic) for each in partitions}
    present = _present(store, group)
    gone = (each for each, code in codes.items() if code is ErrorCode.NONE and each in present)
    return GroupResult(answer=codes, records=tombstones(group, gone))


def delete_all(store: OffsetStore, group: str) -> tuple[GroupRecord, ...]:
    return tombstones(group, _present(store, group))


def delete_of_topics(store: OffsetStore, topics: Collection[str]) -> tuple[GroupRecord, ...]:
    """Every group's offsets of topics that are gone: one made anew begins at its beginning."""
    return tuple(
        GroupRecord(_key(group, each), None)
        for group in sorted(store.groups())
        for each in sorted(_present(store, group))
        if each.topic in topics
    )


def tombstones(group: str, partitions: Iterable[TopicPartition]) -> tuple[GroupRecord, ...]:
    return tuple(GroupRecord(_key(group, each), None) for each in partitions)


def _present(store: OffsetStore, group: str) -> set[TopicPartition]:
    return store.pending_of(group).union(each for each, _ in store.of_group(group))


def _key(group: str, partition: TopicPartition) -> OffsetKey:
    return OffsetKey(group, partition.topic, partition.partition)
