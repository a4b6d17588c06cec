"""Clusters from seeds: whatever happens to them, what was committed stays, and all ends well."""

import pytest
from tests.profile import scaled
from tests.simulation.regressions import SEEDS

from penstock.testing.simulation import Story, run_seed

COUNT = scaled(test=600, verify=5000, release=50_000)
PORTIONS = 10
EVENTFUL = 0.3  # of the seeds: with a leader change, a truncation and a smaller in-sync set


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_whatever_happens_what_was_committed_stays(portion: int) -> None:
    stories = [run_seed(seed) for seed in range(portion, COUNT, PORTIONS)]
    eventful = sum(story.is_eventful for story in stories)
    assert eventful >= EVENTFUL * len(stories)
    assert all(story.acknowledged for story in stories)


@pytest.mark.quick
def test_committed_records_survive_the_first_twenty_seeds() -> None:
    assert all(run_seed(seed).acknowledged for seed in range(20))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_failed_once_does_not_again(seed: int) -> None:
    assert run_seed(seed).acknowledged


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    assert first == second
    assert isinstance(first, Story)
    assert first.digest != run_seed(seed + 1).digest
