"""The part of `AsyncAdmin` for topics, partitions, records and offsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.client.admin_arguments import (
    OffsetAt,
    PartitionsGiven,
    read_brokers,
    read_name,
    read_names,
    read_new_topics,
    read_offset,
    read_offset_at,
    read_partition,
    read_totals,
)
from penstock.client.admin_operations import AdminOperations
from penstock.client.admin_values import CreatedTopic, NewTopic
from penstock.client.data_calls import IsolationLevel, ListedOffset
from penstock.client.item_results import settle
from penstock.client.topic_descriptions import TopicDescription, describe_topics
from penstock.model.ids import NO_LEADER_EPOCH, Offset, TopicId, TopicPartition

_HIGH_WATERMARK = Offset(-1)  # in DeleteRecords
_NONE = -1
Isolation = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    name: str
    topic_id: TopicId | None  # None: an old broker without topic ids
    partitions: int
    replication_factor: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetInfo:
    offset: int | None  # None: no record at or after this time
    timestamp_ms: int | None  # of that record; None for the earliest and the latest offset
    leader_epoch: int | None


class TopicOperations(AdminOperations):
    async def create_topics(
        self,
        topics: str | NewTopic | Iterable[str | NewTopic],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create topics. A plain name has the cluster's default number of partitions and replicas.
        TopicAlreadyExists if one is there."""
        return await self._connected().admin.create_topics(
            read_new_topics(topics), validate_only=validate_only, timeout_ms=self._ms(timeout_s)
        )

    async def delete_topics(
        self, names: str | Iterable[str], *, timeout_s: float | None = None
    ) -> None:
        """Delete topics with all their records. This cannot be undone."""
        wanted = read_names("topic", names)
        await self._connected().admin.delete_topics(wanted, timeout_ms=self._ms(timeout_s))

    async def list_topics(
        self, *, internal: bool = False, timeout_s: float | None = None
    ) -> list[TopicListing]:
        """Every topic, by name; internal ones (committed offsets, transactions) if asked for."""
        topics = await self._connected().metadata(timeout_ms=self._ms(timeout_s))
        return [
            TopicListing(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=len(topic.partitions),
                replication_factor=len(topic.partitions[0].replicas) if topic.partitions else 0,
                is_internal=topic.is_internal,
            )
            for _, topic in sorted(topics.topics.items())
            if topic.exists and (internal or not topic.is_internal)
        ]

    async def describe_topics(
        self,
        names: str | Iterable[str] | None = None,
        *,
        offsets: bool = True,
        timeout_s: float | None = None,
    ) -> dict[str, TopicDescription]:
        """Leaders, ISR, configs, and for every replica its log start offset, high watermark, log
        end offset, how many records it is behind its leader and for how long.

        None: all topics but internal ones. `offsets=False` asks for no offsets, which is faster.
        A broker that does not answer leaves None in its place."""
        wanted = None if names is None else read_names("topic", names)
        topics = await self._get_topics(wanted, self._ms(timeout_s))
        chosen = [topic for topic in topics.values() if wanted is not None or not topic.is_internal]
        return await describe_topics(self._connected(), chosen, with_offsets=offsets)

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Add partitions up to these totals: `{"orders": 12}`. Partitions are never removed, and a
        key may belong to another partition afterwards. `assignments`: for each new partition of a
        topic, the brokers of its replicas."""
        given = {
            read_name("topic", name): [read_brokers(f"topic {name!r}", one) for one in brokers]
            for name, brokers in (assignments or {}).items()
        }
        if strangers := given.keys() - totals.keys():
            raise ValueError(f"no total is given for {', '.join(sorted(strangers))}")
        await self._connected().admin.create_partitions(
            read_totals(totals),
            assignments=given,
            validate_only=validate_only,
            timeout_ms=self._ms(timeout_s),
        )

    async def delete_records(
        self,
        before: Mapping[TopicPartition, int | Literal["latest"]],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete records before these offsets; "latest" deletes all that consumers can read.
        Returns the new log start offsets."""
        offsets = {
            read_partition(tp): _HIGH_WATERMARK
            if offset == "latest"
            else Offset(read_offset(TopicPartition(*tp), offset))
            for tp, offset in before.items()
        }
        timeout_ms = self._ms(timeout_s)
        await self._get_partitions(offsets, timeout_ms)
        deleted = await self._connected().admin.delete_records(offsets, timeout_ms=timeout_ms)
        return {tp: int(offset) for tp, offset in deleted.items()}

    async def list_offsets(
        self,
        partitions: PartitionsGiven | Mapping[TopicPartition, OffsetAt],
        at: OffsetAt = "latest",
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetInfo]:
        """The offset at a position: "earliest", "latest", "max_timestamp" (the newest record by
        time), or the first record at or after a datetime or milliseconds since 1970.

        A topic's name stands for all its partitions; a mapping has a position for each partition.
        "latest" is the high watermark, with isolation="read_committed" the last stable offset."""
        timeout_ms = self._ms(timeout_s)
        if isinstance(partitions, Mapping):
            wanted = {read_partition(tp): read_offset_at(at) for tp, at in partitions.items()}
            await self._get_partitions(wanted, timeout_ms)
        else:
            position = read_offset_at(at)
            wanted = dict.fromkeys(await self._get_partitions(partitions, timeout_ms), position)
        answers = await self._connected().settle_offsets(
            wanted, isolation=_read_isolation(isolation), timeout_ms=timeout_ms
        )
        return {tp: _offset_info(listed) for tp, listed in settle(answers).items()}


def _read_isolation(isolation: str) -> IsolationLevel:
    try:
        return IsolationLevel[isolation.upper()]
    except (KeyError, AttributeError):
        raise ValueError(
            f"isolation {isolation!r} does not exist: use 'read_uncommitted' or 'read_committed'"
        ) from None


def _offset_info(listed: ListedOffset) -> OffsetInfo:
    return OffsetInfo(
        offset=None if listed.offset == _NONE else listed.offset,
        timestamp_ms=None if listed.timestamp_ms == _NONE else listed.timestamp_ms,
        leader_epoch=None if listed.leader_epoch == NO_LEADER_EPOCH else listed.leader_epoch,
    )
