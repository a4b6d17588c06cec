"""Simulated clusters: committed records survive all faults, and the cluster recovers."""

import pytest
from tests.profile import scaled
from tests.simulation.regressions import BALANCED_SEEDS, SEEDS

from penstock.testing.simulation import BALANCED, SimulationPlan, SimulationResult, run_seed

COUNT = scaled(test=120, verify=5000, release=50_000)
CHUNKS = 10
LOST_DATA_COUNT = scaled(test=10, verify=1000, release=10_000)
BALANCED_COUNT = scaled(test=16, verify=400, release=10_000)
BALANCED_CHUNKS = scaled(test=1, verify=4, release=10)
EVENTFUL = 0.3  # share of seeds with a leader change, a truncation and an ISR shrink


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_committed_records_survive_all_faults(chunk: int) -> None:
    results = [run_seed(seed) for seed in range(chunk, COUNT, CHUNKS)]
    eventful = sum(result.is_eventful for result in results)
    assert eventful >= EVENTFUL * len(results)
    assert all(result.acknowledged for result in results)


def test_committed_records_survive_if_one_broker_of_all_restarts_without_its_data() -> None:
    plan = SimulationPlan(loses_data=True)
    results = [run_seed(seed, plan) for seed in range(LOST_DATA_COUNT)]
    assert all(result.committed for result in results)
    acknowledged = sum(bool(result.acknowledged) for result in results)
    assert acknowledged >= 0.9 * len(results)  # in the others a leader failed before each response


@pytest.mark.parametrize("chunk", range(BALANCED_CHUNKS))
def test_a_cluster_that_balances_loses_no_record_and_no_replica_and_is_even_in_the_end(
    chunk: int,
) -> None:
    """With brokers that die and return, and an operator who reassigns and cancels meanwhile."""
    seeds = range(chunk, BALANCED_COUNT, BALANCED_CHUNKS)
    results = [run_seed(seed, BALANCED) for seed in seeds]
    assert all(result.committed and result.reassignments for result in results)
    assert sum(result.undone for result in results) >= len(results) / 8
    assert sum(result.is_eventful for result in results) >= EVENTFUL * len(results)


@pytest.mark.parametrize("seed", BALANCED_SEEDS)
def test_a_seed_of_a_cluster_that_balances_and_that_failed_once_passes(seed: int) -> None:
    assert run_seed(seed, BALANCED).committed


@pytest.mark.quick
def test_committed_records_survive_the_first_twenty_seeds() -> None:
    assert all(run_seed(seed).acknowledged for seed in range(20))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    assert run_seed(seed).acknowledged


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    assert first == second
    assert isinstance(first, SimulationResult)
    assert first.digest != run_seed(seed + 1).digest
