"""Buckets, differences and quantiles of durations."""

import random

import pytest

from penstock.model.histogram import BOUNDS_S, NO_DURATIONS, DurationHistogram, SizeHistogram


def test_bounds_rise_from_microseconds_to_minutes() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
    assert BOUNDS_S[0] == 1e-5
    assert BOUNDS_S[-1] == 70


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-5, 0.0123, 70, 71, 1e6])
def test_an_observation_is_counted_once_at_or_below_its_bound(seconds: float) -> None:
    histogram = DurationHistogram()
    histogram.observe(seconds)
    (counts, total) = histogram.snapshot()
    index = counts.index(1)
    assert sum(counts) == 1
    assert total == seconds
    assert index == len(BOUNDS_S) or seconds <= BOUNDS_S[index]
    assert index == 0 or seconds > BOUNDS_S[index - 1]


def test_quantiles_are_within_a_bucket_of_the_true_ones() -> None:
    draw = random.Random(7)
    values = sorted(draw.lognormvariate(-6, 1) for _ in range(5000))
    histogram = DurationHistogram()
    for value in values:
        histogram.observe(value)
    snapshot = histogram.snapshot()
    for quantile in (0.5, 0.95, 0.99):
        true = values[int(quantile * len(values))]
        assert snapshot.quantile_s(quantile) == pytest.approx(true, rel=0.5)


def test_a_difference_holds_only_what_came_later() -> None:
    histogram = DurationHistogram()
    histogram.observe(5.0)
    earlier = histogram.snapshot()
    histogram.observe(0.001)
    recent = histogram.snapshot().minus(earlier)
    assert recent.total == 1
    assert recent.quantile_s(0.99) <= 0.001
    assert recent.plus(earlier) == histogram.snapshot()


def test_nothing_observed_has_no_quantile() -> None:
    assert NO_DURATIONS.total == 0
    assert NO_DURATIONS.quantile_s(0.99) == 0


def test_a_size_is_counted_at_or_below_its_bound() -> None:
    histogram = SizeHistogram((1, 4, 16))
    for size in (0, 1, 4, 5, 17, 1_000):
        histogram.observe(size)
    snapshot = histogram.snapshot()
    assert snapshot.counts == (2, 1, 1, 2)
    assert (snapshot.total, snapshot.sum) == (6, 1_027)
