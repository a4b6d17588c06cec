"""Histograms of flush rounds, and pauses of the process, as text."""

from tests.unit.metrics.made_statistics import make_statistics

from penstock.metrics.exposition import render
from penstock.metrics.families import Dialect
from penstock.metrics.own_families import own_families
from penstock.metrics.statistics import BrokerStatistics, LoopStatistics
from penstock.protocol.build import find_build
from penstock.storage.engine import DirectoryStatistics
from penstock.storage.flush_times import FlushTimes


def write(statistics: BrokerStatistics) -> list[str]:
    return b"".join(render(own_families(statistics), Dialect.A)).decode().splitlines()


def test_flush_rounds_have_histograms_of_logs_and_bytes() -> None:
    times = FlushTimes()
    times.observe_round(0.01, [0.01], 300)
    times.observe_round(0.02, [0.01, 0.02, 0.01], 5_000)
    directories = DirectoryStatistics(1, {}, 0, times.statistics())
    lines = write(make_statistics(())._replace(directories=directories))
    assert "# TYPE penstock_log_flush_round_logs histogram" in lines
    assert 'penstock_log_flush_round_logs_bucket{le="2"} 1' in lines
    assert 'penstock_log_flush_round_logs_bucket{le="4"} 2' in lines
    assert "penstock_log_flush_round_logs_sum 4" in lines
    assert 'penstock_log_flush_round_bytes_bucket{le="1024"} 1' in lines
    assert 'penstock_log_flush_round_bytes_bucket{le="+Inf"} 2' in lines
    assert "penstock_log_flush_round_bytes_sum 5300" in lines
    assert "penstock_log_flush_round_bytes_count 2" in lines


def test_pauses_are_counted_and_added_up() -> None:
    loop = LoopStatistics(0, 0.0, 0.0, pauses=2, paused_s=8.25)
    lines = write(make_statistics(())._replace(loop=loop))
    assert "penstock_process_pauses_total 2" in lines
    assert "penstock_process_paused_seconds_total 8.25" in lines


def test_the_build_is_a_label() -> None:
    [line] = [line for line in write(make_statistics(())) if line.startswith("penstock_build_info")]
    assert f'build="{find_build()}"' in line
