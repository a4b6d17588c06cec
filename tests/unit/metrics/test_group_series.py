"""Series of groups: right sums, and a bound on what clients can add."""

from pathlib import Path

from tests.unit.metrics.made_statistics import make_partition, make_statistics

from penstock.coordinators.group.coordinator import GroupStatistics
from penstock.metrics.exposition import render
from penstock.metrics.families import Dialect
from penstock.metrics.partition_families import SLICE, GroupSeries
from penstock.model.ids import Offset, TopicPartition
from penstock.replication.partition import PartitionStatistics


def make_group(name: str, topic: str, offsets: int) -> GroupStatistics:
    committed = tuple((TopicPartition(topic, number), 4) for number in range(offsets))
    return GroupStatistics(name, "Stable", "classic", 1, committed)


def write(
    tmp_path: Path, *groups: GroupStatistics, ends: int, limit: int = 10_000
) -> tuple[int, list[str]]:
    """The turns it took, and the series. `ends`: partitions of "t" with a replica here, at 10."""
    one = make_partition(tmp_path).statistics()
    replicas = tuple(_at_ten(one, number) for number in range(ends))
    series = GroupSeries(make_statistics(replicas)._replace(groups=groups), limit)
    turns = sum(1 for _ in series.write())
    text = b"".join(render(series.families(), Dialect.A)).decode()
    return turns, [line for line in text.splitlines() if not line.startswith("#")]


def _at_ten(statistics: PartitionStatistics, number: int) -> PartitionStatistics:
    tp, end = TopicPartition("t", number), Offset(10)
    return statistics._replace(tp=tp, high_watermark=end, visible_end=end)


def test_lag_is_summed_over_the_partitions_of_a_topic(tmp_path: Path) -> None:
    _, lines = write(tmp_path, make_group("g", "t", 3), ends=3)
    assert 'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="2"} 6' in lines
    assert 'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 18' in lines


def test_no_sum_of_lags_without_a_replica_of_every_partition(tmp_path: Path) -> None:
    _, lines = write(tmp_path, make_group("g", "t", 3), ends=2)
    assert 'kafka_consumergroup_current_offset_sum{consumergroup="g",topic="t"} 12' in lines
    assert 'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="1"} 6' in lines
    assert not [line for line in lines if line.startswith("kafka_consumergroup_lag_sum")]


def test_sums_hold_where_the_limit_cuts_single_partitions(tmp_path: Path) -> None:
    _, lines = write(tmp_path, make_group("g", "t", 3), ends=3, limit=2)
    assert sum("kafka_consumergroup_lag{" in line for line in lines) == 2
    assert 'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 18' in lines


def test_groups_above_the_limit_have_no_series(tmp_path: Path) -> None:
    groups = [make_group(f"g{number}", "t", 0) for number in range(5)]
    _, lines = write(tmp_path, *groups, ends=0, limit=3)
    members = [line for line in lines if line.startswith("kafka_consumergroup_members")]
    assert members == [f'kafka_consumergroup_members{{consumergroup="g{n}"}} 1' for n in range(3)]


def test_others_get_turns_while_one_large_group_is_written(tmp_path: Path) -> None:
    turns, _ = write(tmp_path, make_group("g", "t", 5 * SLICE), ends=0)
    assert turns >= 5
