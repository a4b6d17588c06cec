"""Time lag of groups: right values, and a bound on what a scrape reads from logs."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from tests.unit.metrics.made_statistics import make_partition, make_partitions, make_statistics

from penstock.coordinators.group.coordinator import GroupStatistics
from penstock.metrics.committed_times import SLICE_S, CommittedTimes
from penstock.metrics.exposition import render
from penstock.metrics.families import Dialect
from penstock.metrics.partition_families import TIME_LAG, GroupSeries
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.replication.partition import PartitionStatistics

NOW_MS = 100_000
END = 50


class LagHarness:
    """One group and partitions of "t" whose log ends at 50. The record at offset n is from
    1,000 * n ms."""

    def __init__(self, folder: Path, *, partitions: int = 3, max_look_ups: int = 1_000) -> None:
        one = make_partition(folder).statistics()
        self.replicas = [_with_end(one, number) for number in range(partitions)]
        self.looked_up: list[tuple[int, int]] = []  # partition, offset
        self.times = CommittedTimes(self._find_time, max_look_ups=max_look_ups)

    def _find_time(self, tp: TopicPartition, offset: Offset) -> TimestampMs | None:
        self.looked_up.append((tp.partition, offset))
        return None if offset == 13 else TimestampMs(1_000 * offset)

    def scrape(self, *offsets: int, limit: int = 10_000) -> dict[int, float]:
        """Time lag by partition. `offsets`: committed in partition 0, 1, ..."""
        self.looked_up.clear()
        committed = tuple((TopicPartition("t", n), offset) for n, offset in enumerate(offsets))
        group = GroupStatistics("g", "Stable", "classic", 1, committed)
        statistics = make_statistics(tuple(self.replicas))
        statistics = statistics._replace(groups=(group,), wall_ms=NOW_MS)
        series = GroupSeries(statistics, limit, asyncio.run(self.times.find(statistics, limit)))
        for _ in series.write():
            pass
        text = b"".join(render(series.families(), Dialect.A, (TIME_LAG,))).decode()
        return dict(_read(line) for line in text.splitlines() if not line.startswith("#"))


def _with_end(statistics: PartitionStatistics, number: int) -> PartitionStatistics:
    tp = TopicPartition("t", number)
    return statistics._replace(tp=tp, high_watermark=Offset(END), visible_end=Offset(END))


def _read(line: str) -> tuple[int, float]:
    series, _, value = line.rpartition(" ")
    prefix = f'{TIME_LAG}{{consumergroup="g",topic="t",partition="'
    assert series.startswith(prefix), line
    return int(series.removeprefix(prefix).removesuffix('"}')), float(value)


def test_time_lag_is_the_age_of_the_record_at_the_committed_offset(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path)
    assert harness.scrape(10, 49, END) == {0: 90.0, 1: 51.0, 2: 0.0}
    assert harness.looked_up == [(0, 10), (1, 49)], "nothing is behind the third"


def test_an_offset_that_has_not_moved_is_not_looked_up_again(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path)
    harness.scrape(10, 20, 30)
    assert harness.scrape(10, 21, 30) == {0: 90.0, 1: 79.0, 2: 70.0}
    assert harness.looked_up == [(1, 21)]


def test_deleted_records_are_not_waited_for(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path, partitions=1)
    harness.replicas[0] = harness.replicas[0]._replace(log_start_offset=Offset(40))
    assert harness.scrape(10) == {0: 60.0}


def test_a_record_without_a_time_has_no_time_lag(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path)
    assert harness.scrape(13, 20) == {1: 80.0}
    harness.scrape(13, 20)
    assert harness.looked_up == [], "that it has none is remembered as well"


def test_partitions_without_a_replica_here_have_no_time_lag(tmp_path: Path) -> None:
    assert LagHarness(tmp_path, partitions=1).scrape(10, 10) == {0: 90.0}


def test_a_scrape_looks_up_so_many_and_the_next_ones_the_rest(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path, max_look_ups=2)
    assert len(harness.scrape(10, 10, 10)) == 2
    assert harness.scrape(10, 10, 10) == dict.fromkeys(range(3), 90.0)
    assert len(harness.looked_up) == 1


def test_above_the_bound_the_lag_of_an_earlier_commit_stands_in(tmp_path: Path) -> None:
    """It is too large and never too small, and every partition has its turn."""
    harness = LagHarness(tmp_path, max_look_ups=1)
    for _ in range(3):
        harness.scrape(10, 10, 10)
    turns = []
    for offset in (11, 12, 14):
        lags = harness.scrape(offset, offset, offset)
        turns += [partition for partition, _ in harness.looked_up]
        assert sorted(lags) == [0, 1, 2]
        assert all(lag >= 100 - offset for lag in lags.values())
        assert lags[turns[-1]] == 100 - offset
    assert sorted(turns) == [0, 1, 2]


def test_an_offset_that_was_reset_backwards_has_no_lag_that_is_too_small(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path, max_look_ups=1)
    for _ in range(2):
        harness.scrape(40, 40)
    assert harness.scrape(10, 10) == {0: 90.0}


def test_another_leader_epoch_may_have_other_records(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path, partitions=1)
    harness.scrape(10)
    harness.replicas[0] = harness.replicas[0]._replace(leader_epoch=LeaderEpoch(7))
    harness.scrape(10)
    assert harness.looked_up == [(0, 10)]


def test_the_limit_of_series_holds_for_look_ups(tmp_path: Path) -> None:
    harness = LagHarness(tmp_path)
    assert harness.scrape(10, 10, 10, limit=2) == {0: 90.0, 1: 90.0}
    assert len(harness.looked_up) == 2


def test_other_work_goes_on_while_many_offsets_are_looked_up(tmp_path: Path) -> None:
    """Each of these look-ups takes long, so that every other one is another's turn."""
    partitions = make_partitions(tmp_path, 30)
    turns: list[str] = []

    def find_slowly(tp: TopicPartition, offset: Offset) -> TimestampMs | None:
        turns.append("look-up")
        ends_s = time.perf_counter() + SLICE_S
        while time.perf_counter() <= ends_s:
            pass
        return partitions[tp].find_time_of(offset)

    async def scenario() -> None:
        replicas = tuple(partition.statistics() for partition in partitions.values())
        group = GroupStatistics("g", "Stable", "classic", 1, tuple((tp, 1) for tp in partitions))
        statistics = make_statistics(replicas)._replace(groups=(group,))
        finding = asyncio.create_task(CommittedTimes(find_slowly).find(statistics, 10_000))
        while not finding.done():
            turns.append("other")
            await asyncio.sleep(0)
        times = await finding
        assert {time.timestamp_ms for time in times["g"].values()} == {2_000}

    asyncio.run(scenario())
    assert turns.count("look-up") == len(partitions)
    assert ("look-up", "look-up") not in pairwise(turns)
