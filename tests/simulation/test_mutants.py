"""The simulation finds every planted bug; without the bug the same seed passes."""

from itertools import chain

import pytest
from tests.profile import scaled
from tests.simulation.mutants import BALANCED_MUTANTS, LOST_DATA_MUTANTS, MUTANTS, Planted

from penstock.testing.simulation import BALANCED, SimulationPlan, Violation, run_seed

MAX_SEEDS = scaled(test=400, verify=2000, release=5000)


LOSING_DATA = SimulationPlan(loses_data=True)


def find_seed(planted: Planted, first: int, plan: SimulationPlan | None = None) -> int | None:
    """The first seed that shows the bug, starting with the recorded one."""
    for seed in chain([first], range(MAX_SEEDS)):  # other seeds help if the simulation has changed
        try:
            with planted():
                run_seed(seed, plan)
        except Violation:
            return seed
    return None


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda item: item.__name__)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    seed = find_seed(planted, MUTANTS[planted])
    assert seed is not None, f"none of {MAX_SEEDS} seeds shows it"
    assert run_seed(seed).acknowledged


@pytest.mark.parametrize("planted", LOST_DATA_MUTANTS, ids=lambda item: item.__name__)
def test_a_planted_bug_about_lost_data_is_found(planted: Planted) -> None:
    seed = find_seed(planted, LOST_DATA_MUTANTS[planted], LOSING_DATA)
    assert seed is not None, f"none of {MAX_SEEDS} seeds shows it"
    assert run_seed(seed, LOSING_DATA).acknowledged


@pytest.mark.parametrize("planted", BALANCED_MUTANTS, ids=lambda item: item.__name__)
def test_a_planted_bug_about_reassignments_is_found(planted: Planted) -> None:
    seed = find_seed(planted, BALANCED_MUTANTS[planted], BALANCED)
    assert seed is not None, f"none of {MAX_SEEDS} seeds shows it"
    assert run_seed(seed, BALANCED).committed
