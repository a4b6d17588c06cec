"""Series of single partitions and groups: Kafka's, and kafka_exporter's names for the same.

A broker writes those of the partitions that it leads and of the groups that it coordinates, up to
`metrics.partition.limit` of each: with a scrape of all brokers, every series is there once.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, eq, lt

from penstock.coordinators.group.coordinator import GroupStatistics
from penstock.metrics.committed_times import NO_TIMES, GroupTimes
from penstock.metrics.families import Family, MetricKind, Number, Sample, escape, labels
from penstock.metrics.statistics import BrokerStatistics
from penstock.model.ids import TopicPartition
from penstock.replication.partition import PartitionStatistics, Role

_GAUGE = MetricKind.GAUGE
# Of the names of all families of partitions, with the topics that follow from them, and of groups.
PARTITION_PREFIXES = ("kafka_cluster_partition", "kafka_log_log_", "kafka_topic_partition")
TIME_LAG = "penstock_consumergroup_time_lag_seconds"
GROUP_PREFIXES = ("kafka_consumergroup", TIME_LAG)
SLICE = 1_000  # partitions whose labels are written at once

CommittedOffset = tuple[TopicPartition, int]


def list_led(statistics: BrokerStatistics, limit: int) -> list[PartitionStatistics]:
    partitions = statistics.replicas.partitions
    return [partition for partition in partitions if partition.role is Role.LEADER][:limit]


def label_slices(led: Sequence[PartitionStatistics]) -> Iterator[list[str]]:
    """The labels of all partitions, some at a time."""
    for start in range(0, len(led), SLICE):
        yield [
            f'{{topic="{p.tp.topic}",partition="{p.tp.partition}"}}'
            for p in led[start : start + SLICE]
        ]


def partition_families(
    led: Sequence[PartitionStatistics], texts: Sequence[str]
) -> Iterator[Family]:
    """`texts`: the partitions' labels. A column at a time, and lazily: the values of a family are
    computed while its lines are written."""

    def family(name: str, help_text: str, column: Iterable[Number]) -> Family:
        return Family(name, _GAUGE, help_text, zip(texts, column, strict=True))

    def field(name: str) -> Iterator[Number]:
        return map(attrgetter(name), led)

    in_sync = [len(partition.in_sync) for partition in led]
    replicas = [len(partition.replicas) for partition in led]
    under_replicated = list(map(int, map(lt, in_sync, replicas)))
    prefix = "kafka_cluster_partition"
    help_text = "1: fewer in-sync replicas than min.insync.replicas."
    column = map(int, map(lt, in_sync, field("min_in_sync")))
    yield family(f"{prefix}_underminisr", help_text, column)
    help_text = "1: just min.insync.replicas are in sync."
    column = map(int, map(eq, in_sync, field("min_in_sync")))
    yield family(f"{prefix}_atminisr", help_text, column)
    yield family(f"{prefix}_underreplicated", "1: replicas are out of sync.", under_replicated)
    yield family(f"{prefix}_replicascount", "Replicas.", replicas)
    prefix = "kafka_log_log"
    yield family(f"{prefix}_size", "Bytes on this broker.", field("size_bytes"))
    yield family(f"{prefix}_logstartoffset", "Log start offset.", field("log_start_offset"))
    yield family(f"{prefix}_logendoffset", "Log end offset.", field("log_end_offset"))
    yield family(f"{prefix}_numlogsegments", "Segments.", field("segments"))
    prefix = "kafka_topic_partition"  # kafka_exporter's
    yield family(f"{prefix}_current_offset", "End for consumers.", field("visible_end"))
    yield family(f"{prefix}_oldest_offset", "Log start offset.", field("log_start_offset"))
    yield family(f"{prefix}_in_sync_replica", "In-sync replicas.", in_sync)
    yield family(f"{prefix}_leader", "Broker id of the leader.", field("leader"))
    preferred = (1 if p.replicas and p.leader == p.replicas[0] else 0 for p in led)
    help_text = "1: the leader is the preferred replica."
    yield family(f"{prefix}_leader_is_preferred", help_text, preferred)
    yield family(f"{prefix}_replicas", "Replicas.", replicas)
    help_text = "1: replicas are out of sync."
    yield family(f"{prefix}_under_replicated_partition", help_text, under_replicated)


def cluster_families(
    statistics: BrokerStatistics, led: Sequence[PartitionStatistics]
) -> Iterator[Family]:
    """kafka_exporter's series that are not of single partitions or groups."""
    brokers = statistics.brokers
    yield Family("kafka_brokers", _GAUGE, "Registered brokers.", [("", len(brokers))])
    info: list[Sample] = [
        (labels(id=broker, address=address), 1) for broker, address in brokers.items()
    ]
    yield Family("kafka_broker_info", _GAUGE, "Registered brokers.", info)
    topics = dict.fromkeys(partition.tp.topic for partition in led)
    counts: list[Sample] = [
        (labels(topic=topic), statistics.topic_partitions.get(topic, 0)) for topic in topics
    ]
    yield Family("kafka_topic_partitions", _GAUGE, "Partitions of the topic.", counts)


class GroupSeries:
    """The series of groups, written group by group. Lag is known for partitions of which this
    broker has a replica: for all, on one broker. Time lag needs `times`, too."""

    def __init__(
        self, statistics: BrokerStatistics, limit: int, times: GroupTimes = NO_TIMES
    ) -> None:
        self._groups = statistics.groups
        self._times = times
        self._wall_ms = statistics.wall_ms
        partitions = statistics.replicas.partitions
        tps, ends = map(attrgetter("tp"), partitions), map(attrgetter("visible_end"), partitions)
        self._ends = dict(zip(tps, ends, strict=True))
        self._left = limit
        self._offsets: list[Sample] = []
        self._lags: list[Sample] = []
        self._time_lags: list[Sample] = []
        self._offset_sums: list[Sample] = []
        self._lag_sums: list[Sample] = []
        self._members: list[Sample] = []

    def write(self) -> Iterator[None]:
        """Write all; the caller may let others run at every step."""
        unbroken = 0
        for group in self._groups:
            if self._left <= 0:
                return  # clients choose how many groups there are
            unbroken += 1
            for some in self._write_group(group):
                unbroken += some
                if unbroken >= SLICE:
                    unbroken = 0
                    yield

    def _write_group(self, group: GroupStatistics) -> Iterator[int]:
        """Yields how many offsets were written, some at a time. Sums are of all offsets, also
        where the limit cuts the series of single partitions."""
        name = f'{{consumergroup="{escape(group.group)}"'
        self._members.append((name + "}", group.members))
        totals: dict[str, tuple[int, int | None]] = {}
        for start in range(0, len(group.offsets), SLICE):
            some = group.offsets[start : start + SLICE]
            self._write_partitions(group.group, name, some[: max(0, self._left)])
            self._add_up(some, totals)
            self._left -= len(some)
            yield len(some)
        self._left -= not group.offsets
        for topic, (offset_sum, lag_sum) in totals.items():
            label = f'{name},topic="{topic}"}}'
            self._offset_sums.append((label, offset_sum))
            if lag_sum is not None:
                self._lag_sums.append((label, lag_sum))

    def _write_partitions(self, group: str, name: str, offsets: Sequence[CommittedOffset]) -> None:
        times = self._times.get(group, {})
        for tp, offset in offsets:
            label = f'{name},topic="{tp.topic}",partition="{tp.partition}"}}'
            self._offsets.append((label, offset))
            end = self._ends.get(tp)
            if end is None:
                continue
            self._lags.append((label, max(0, end - offset)))
            if offset >= end:
                self._time_lags.append((label, 0))
            elif (time := times.get(tp)) is not None and time.timestamp_ms is not None:
                self._time_lags.append((label, max(0, self._wall_ms - time.timestamp_ms) / 1000))

    def _add_up(
        self, offsets: Sequence[CommittedOffset], totals: dict[str, tuple[int, int | None]]
    ) -> None:
        """By topic. The lag is None once that of a partition is not known: part of a sum would
        look like a small lag."""
        for tp, offset in offsets:
            end = self._ends.get(tp)
            offset_sum, lag_sum = totals.get(tp.topic, (0, 0))
            if end is None or lag_sum is None:
                totals[tp.topic] = offset_sum + offset, None
            else:
                totals[tp.topic] = offset_sum + offset, lag_sum + max(0, end - offset)

    def families(self) -> Iterator[Family]:
        prefix = "kafka_consumergroup"
        yield Family(f"{prefix}_members", _GAUGE, "Members of the group.", self._members)
        yield Family(f"{prefix}_current_offset", _GAUGE, "Committed offset.", self._offsets)
        help_text = "Sum over the topic's partitions."
        yield Family(f"{prefix}_current_offset_sum", _GAUGE, help_text, self._offset_sums)
        yield Family(f"{prefix}_lag", _GAUGE, "Records after the committed offset.", self._lags)
        yield Family(f"{prefix}_lag_sum", _GAUGE, help_text, self._lag_sums)
        help_text = "Now minus the time of the record at the committed offset; 0: none is behind."
        yield Family(TIME_LAG, _GAUGE, help_text, self._time_lags)
        help_text = "The lag, by the name that Grafana's exporter gives it."
        yield Family(f"{prefix}_uncommitted_offsets", _GAUGE, help_text, self._lags)
