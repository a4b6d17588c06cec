"""Partitions and offsets of what a query reads, asked of the cluster.

Decides nothing about batches: that is `plan.py`. Invariant: offsets it gives are those of the
isolation level that records are read with.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
from penstock.client.metadata import TopicMetadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import Buffer, iter_headers
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import DataLoss, SparkSourceError
from penstock.spark.source import offset_json
from penstock.spark.source.history import History
from penstock.spark.source.offset_json import Offsets, format_partitions
from penstock.spark.source.options import BoundKind, OffsetFallback, RangeBound, SourceOptions

_log = logging.getLogger(__name__)
_SOON_S = 0.1  # a topic that was just created is not known to every broker yet
_PROBE_BYTES = 64 * 1024


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
        """All that the subscription names now. Lenient: topics that are gone are left out."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            match = subscription.pattern.search  # a part of the name is enough, as in Spark
            found = self._client.metadata().topics.values()
            return _partitions_of(
                each for each in found if each.exists and not each.is_internal and match(each.name)
            )
        names = subscription.topics or {each.topic for each in subscription.assigned}
        topics = self._get_topics(sorted(names), is_lenient=is_lenient)
        existing = _partitions_of(topics)
        if not subscription.assigned:
            return existing
        missing = set(subscription.assigned) - set(existing)
        if missing and not is_lenient:
            raise SparkSourceError(
                f"option assign names {format_partitions(missing)}, which the cluster does not "
                "have: correct the option, or add partitions to the topic"
            )
        return [each for each in subscription.assigned if each not in missing]

    def _get_topics(self, names: list[str], *, is_lenient: bool) -> list[TopicMetadata]:
        for attempt in range(self._options.offset_retries + 1):
            found = self._client.metadata(names).topics
            missing = [name for name in names if name not in found or not found[name].exists]
            if not missing or is_lenient:
                break
            if attempt < self._options.offset_retries:
                self._sleep(_SOON_S)
        if missing and not is_lenient:
            raise _no_such_topics(missing, found)
        return [found[name] for name in names if name not in missing]

    # Offsets.

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Of the logs, or of the tables that hold what the logs have not any more."""
        found = self._listed(dict.fromkeys(partitions, EARLIEST))
        return found if self._history is None else self._history.earliest(found)

    def latest(
        self, partitions: Iterable[TopicPartition], known: Offsets | None = None
    ) -> dict[TopicPartition, int]:
        """The ends of the logs. One that lies before what is known already is asked again, as a
        broker that has just become leader may not know it yet."""
        wanted = dict.fromkeys(partitions, LATEST)
        for attempt in range(self._options.offset_retries + 1):
            found = self._listed(wanted)
            behind = [each for each, at in (known or {}).items() if found.get(each, at) < at]
            if not behind:
                break
            if attempt < self._options.offset_retries:
                _log.warning("the ends of %s moved back; asking again", format_partitions(behind))
                self._sleep(self._options.offset_retry_interval_ms / 1000)
        return found

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first record that is not older, if there is one."""
        found = {
            each: None if offset < 0 else offset for each, offset in self._listed(times).items()
        }
        return found if self._history is None else {**found, **self._history.at_times(times)}

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        listed = self._client.list_offsets(wanted, isolation=self._options.isolation)
        return {each: found.offset for each, found in listed.items()}

    def bytes_per_offset(self, starts: Offsets) -> dict[TopicPartition, float]:
        """What an offset takes in the log, measured where reading goes on."""
        if not starts:
            return {}
        wanted = [FetchFrom(each, Offset(at), _PROBE_BYTES) for each, at in starts.items()]
        fetched = self._client.fetch(wanted, isolation=self._options.isolation, max_wait_ms=0)
        return {each.partition: _bytes_per_offset(each.batches) for each in fetched}

    # What was asked for.

    def resolve(
        self, bound: RangeBound, partitions: list[TopicPartition], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        """The offset of each partition that an option means now."""
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
        first = [each for each, at in offsets.items() if at == offset_json.EARLIEST]
        last = [each for each, at in offsets.items() if at == offset_json.LATEST]
        return {**offsets, **self.earliest(first), **self.latest(last)}

    def _not_before(
        self, bound: RangeBound, times: Mapping[TopicPartition, int], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        found = self.at_times(times)
        unmatched = [each for each, offset in found.items() if offset is None]
        if unmatched and is_start and self._options.without_match is OffsetFallback.ERROR:
            raise SparkSourceError(
                f"option {bound.option}: no record of {format_partitions(unmatched)} is as late as "
                "that; set startingOffsetsByTimestampStrategy to latest to begin at the end there"
            )
        matched = {each: offset for each, offset in found.items() if offset is not None}
        return {**matched, **self.latest(unmatched)}

    def _of_group(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        group = self._options.group
        assert group is not None, "checked when the options were parsed"
        committed = self._client.groups.fetch_offsets(group, partitions)
        offsets = {each: found.offset for each, found in committed.items() if each in partitions}
        without = [each for each in partitions if each not in offsets]
        if not without:
            return offsets
        match self._options.without_commit:
            case OffsetFallback.EARLIEST:
                return {**offsets, **self.earliest(without)}
            case OffsetFallback.LATEST:
                return {**offsets, **self.latest(without)}
            case OffsetFallback.ERROR:
                raise SparkSourceError(
                    f"group {group!r} has committed nothing for {format_partitions(without)}; set "
                    "startingOffsetsByGroupStrategy to earliest or latest to begin there anyway"
                )

    def report_losses(self, losses: Iterable[str]) -> None:
        for what in losses:
            if self._options.fail_on_data_loss:
                raise DataLoss(what)
            _log.warning("%s; going on, since failOnDataLoss is false", what)


def _partitions_of(topics: Iterable[TopicMetadata]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions
    )


def _no_such_topics(missing: list[str], found: Mapping[str, TopicMetadata]) -> SparkSourceError:
    for name in missing:
        error = found[name].error if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return SparkSourceError(f"topic {name!r} cannot be read: {error.message}")
    names = ", ".join(repr(name) for name in missing)
    return SparkSourceError(
        f"there is no topic {names} in this cluster: correct the option subscribe or assign, "
        f"or create it with `penstock topic create {missing[0]}`"
    )


def _check_same(bound: RangeBound, partitions: list[TopicPartition]) -> None:
    given, found = bound.per_partition.keys(), set(partitions)
    if given == found:
        return
    parts = []
    if found - given:
        parts.append(f"it lacks {format_partitions(found - given)}")
    if given - found:
        parts.append(
            f"{format_partitions(given - found)} are not read by this query or do not exist"
        )
    raise SparkSourceError(
        f"option {bound.option} must name every partition that is read and no other: "
        f"{' and '.join(parts)}"
    )


def _bytes_per_offset(batches: Buffer) -> float:
    """Of whole batches, gaps included; 0 where nothing can be measured."""
    headers = [header for _, header in iter_headers(batches)]
    if not headers:
        return 0.0
    span = headers[-1].next_offset - headers[0].base_offset
    return sum(each.size for each in headers) / span
