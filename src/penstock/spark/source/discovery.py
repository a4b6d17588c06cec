"""Looks up the partitions that a query reads and their offsets in the cluster.

Decides nothing about batches: that is `plan.py`. Invariant: its offsets are those of the isolation
level that records are read with.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
from penstock.client.metadata import TopicMetadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import Buffer, iter_headers
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import DataLoss, SparkSourceError
from penstock.spark.source import offset_json
from penstock.spark.source.history import History
from penstock.spark.source.offset_json import Offsets, TopicIds, format_partitions
from penstock.spark.source.options import BoundKind, OffsetFallback, RangeBound, SourceOptions
from penstock.spark.source.plan import find_recreated

_log = logging.getLogger(__name__)
_RETRY_S = 0.1  # a broker may not know a topic yet that was just created
_PROBE_BYTES = 64 * 1024


class SubscribedPartitions(NamedTuple):
    partitions: list[TopicPartition]
    topic_ids: dict[str, str]  # without topics of brokers that know no ids


class Discovery:
    def __init__(
        self,
        client: BlockingClient,
        options: SourceOptions,
        history: History | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._options = options
        self._sleep = sleep
        assert (history is None) == (options.history is None), "the option `history` was dropped"
        self._history = history

    # Partitions.

    def find_partitions(self, *, is_lenient: bool = False) -> list[TopicPartition]:
        """All partitions that the subscription matches now. Lenient: omits missing topics."""
        return self.find_subscribed(is_lenient=is_lenient).partitions

    def find_subscribed(
        self, *, is_lenient: bool = False, saved_ids: TopicIds | None = None
    ) -> SubscribedPartitions:
        """Also the ids of their topics. Retries if one is not the saved one, because a broker may
        not have heard yet that a topic was recreated."""
        for attempt in range(self._options.offset_retries + 1):
            topics = self._find_topics(is_lenient=is_lenient)
            topic_ids = {topic.name: str(topic.topic_id) for topic in topics if topic.topic_id}
            recreated = find_recreated(saved_ids or {}, topic_ids)
            if not recreated:
                break
            if attempt < self._options.offset_retries:
                _log.warning("the ids of topics %s changed; retrying", ", ".join(recreated))
                self._sleep(self._options.offset_retry_interval_ms / 1000)
        partitions = self._select_assigned(_partitions_of(topics), is_lenient=is_lenient)
        return SubscribedPartitions(partitions, topic_ids)

    def _find_topics(self, *, is_lenient: bool) -> list[TopicMetadata]:
        subscription = self._options.subscription
        if subscription.pattern is not None:
            match = subscription.pattern.search  # matches a part of the name, as in Spark
            topics = self._client.metadata().topics.values()
            return [
                topic
                for topic in topics
                if topic.exists and not topic.is_internal and match(topic.name)
            ]
        names = subscription.topics or {tp.topic for tp in subscription.assigned}
        return self._get_topics(sorted(names), is_lenient=is_lenient)

    def _select_assigned(
        self, existing: list[TopicPartition], *, is_lenient: bool
    ) -> list[TopicPartition]:
        assigned = self._options.subscription.assigned
        if not assigned:
            return existing
        missing = set(assigned) - set(existing)
        if missing and not is_lenient:
            raise SparkSourceError(
                f"option assign names {format_partitions(missing)}, which the cluster does not "
                "have: correct the option, or add partitions to the topic"
            )
        return [tp for tp in assigned if tp not in missing]

    def _get_topics(self, names: list[str], *, is_lenient: bool) -> list[TopicMetadata]:
        for attempt in range(self._options.offset_retries + 1):
            topics = self._client.metadata(names).topics
            missing = [name for name in names if name not in topics or not topics[name].exists]
            if not missing or is_lenient:
                break
            if attempt < self._options.offset_retries:
                self._sleep(_RETRY_S)
        if missing and not is_lenient:
            raise _no_such_topics(missing, topics)
        return [topics[name] for name in names if name not in missing]

    # Offsets.

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of the logs, or of tables that hold what the logs no longer have."""
        log_starts = self._listed(dict.fromkeys(partitions, EARLIEST))
        return log_starts if self._history is None else self._history.earliest(log_starts)

    def latest(
        self, partitions: Iterable[TopicPartition], consumed: Offsets | None = None
    ) -> dict[TopicPartition, int]:
        """The ends of the logs. Retries if one is before the offset already consumed, because a
        broker that has just become leader may not know its high watermark yet."""
        wanted = dict.fromkeys(partitions, LATEST)
        for attempt in range(self._options.offset_retries + 1):
            ends = self._listed(wanted)
            behind = [tp for tp, at in (consumed or {}).items() if ends.get(tp, at) < at]
            if not behind:
                break
            if attempt < self._options.offset_retries:
                _log.warning("the ends of %s moved back; retrying", format_partitions(behind))
                self._sleep(self._options.offset_retry_interval_ms / 1000)
        return ends

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record that is not older, if there is one."""
        listed = {tp: None if offset < 0 else offset for tp, offset in self._listed(times).items()}
        return listed if self._history is None else {**listed, **self._history.at_times(times)}

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        listed = self._client.list_offsets(wanted, isolation=self._options.isolation)
        return {tp: entry.offset for tp, entry in listed.items()}

    def bytes_per_offset(self, starts: Offsets) -> dict[TopicPartition, float]:
        """Average bytes per offset in the log, measured where reading continues."""
        if not starts:
            return {}
        wanted = [FetchFrom(tp, Offset(start), _PROBE_BYTES) for tp, start in starts.items()]
        fetched = self._client.fetch(wanted, isolation=self._options.isolation, max_wait_ms=0)
        return {entry.tp: _bytes_per_offset(entry.batches) for entry in fetched}

    # Bounds.

    def resolve(
        self, bound: RangeBound, partitions: list[TopicPartition], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        """The offset of each partition that the bound means now."""
        match bound.kind:
            case BoundKind.EARLIEST:
                return self.earliest(partitions)
            case BoundKind.LATEST:
                return self.latest(partitions)
            case BoundKind.GROUP:
                return self._of_group(partitions)
            case BoundKind.OFFSETS:
                _check_same(bound, partitions)
                return self._fill_in(bound.per_partition)
            case BoundKind.TIMES:
                _check_same(bound, partitions)
                return self._not_before(bound, bound.per_partition, is_start=is_start)
            case BoundKind.TIME:
                times = dict.fromkeys(partitions, bound.time_ms)
                return self._not_before(bound, times, is_start=is_start)

    def _fill_in(self, offsets: Offsets) -> dict[TopicPartition, int]:
        first = [tp for tp, offset in offsets.items() if offset == offset_json.EARLIEST]
        last = [tp for tp, offset in offsets.items() if offset == offset_json.LATEST]
        return {**offsets, **self.earliest(first), **self.latest(last)}

    def _not_before(
        self, bound: RangeBound, times: Mapping[TopicPartition, int], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        at_times = self.at_times(times)
        unmatched = [tp for tp, offset in at_times.items() if offset is None]
        if unmatched and is_start and self._options.without_match is OffsetFallback.ERROR:
            raise SparkSourceError(
                f"option {bound.option}: no record of {format_partitions(unmatched)} is as late as "
                "that; set startingOffsetsByTimestampStrategy to latest to start at the end there"
            )
        matched = {tp: offset for tp, offset in at_times.items() if offset is not None}
        return {**matched, **self.latest(unmatched)}

    def _of_group(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        group = self._options.group
        assert group is not None, "checked when the options are parsed"
        committed = self._client.groups.fetch_offsets(group, partitions)
        offsets = {tp: entry.offset for tp, entry in committed.items() if tp in partitions}
        without = [tp for tp in partitions if tp not in offsets]
        if not without:
            return offsets
        match self._options.without_commit:
            case OffsetFallback.EARLIEST:
                return {**offsets, **self.earliest(without)}
            case OffsetFallback.LATEST:
                return {**offsets, **self.latest(without)}
            case OffsetFallback.ERROR:
                raise SparkSourceError(
                    f"group {group!r} has no committed offset for {format_partitions(without)}; "
                    "set startingOffsetsByGroupStrategy to earliest or latest to start there"
                )

    def report_losses(self, losses: Iterable[str]) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLoss(loss)
            _log.warning("%s; continuing because failOnDataLoss is false", loss)


def _partitions_of(topics: Iterable[TopicMetadata]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.name, entry.partition)
        for topic in topics
        for entry in topic.partitions
    )


def _no_such_topics(missing: list[str], topics: Mapping[str, TopicMetadata]) -> SparkSourceError:
    for name in missing:
        error = topics[name].error if name in topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return SparkSourceError(f"topic {name!r} cannot be read: {error.message}")
    names = ", ".join(repr(name) for name in missing)
    return SparkSourceError(
        f"there is no topic {names} in this cluster: correct the option subscribe or assign, "
        f"or create it with `penstock topic create {missing[0]}`"
    )


def _check_same(bound: RangeBound, partitions: list[TopicPartition]) -> None:
    named, read = bound.per_partition.keys(), set(partitions)
    if named == read:
        return
    parts = []
    if read - named:
        parts.append(f"it lacks {format_partitions(read - named)}")
    if named - read:
        parts.append(
            f"{format_partitions(named - read)} are not read by this query or do not exist"
        )
    raise SparkSourceError(
        f"option {bound.option} must name every partition that is read and no other: "
        f"{' and '.join(parts)}"
    )


def _bytes_per_offset(batches: Buffer) -> float:
    """The average over whole batches, including gaps; 0 if there is no batch."""
    headers = [header for _, header in iter_headers(batches)]
    if not headers:
        return 0.0
    span = headers[-1].next_offset - headers[0].base_offset
    return sum(header.size for header in headers) / span
