"""The simulation finds every planted bug; without the bug the same seed passes."""

from itertools import chain

import pytest
from tests.profile import scaled
from tests.simulation.mutants import MUTANTS, Planted

from penstock.testing.simulation import Violation, run_seed

MAX_SEEDS = scaled(test=400, verify=2000, release=5000)


def find_seed(planted: Planted, first: int) -> int | None:
    """The first seed that shows the bug, starting with the recorded one."""
    for seed in chain([first], range(MAX_SEEDS)):  # others, if the simulation has changed
        try:
            with planted():
                run_seed(seed)
        except Violation:
            return seed
    return None


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda item: item.__name__)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    seed = find_seed(planted, MUTANTS[planted])
    assert seed is not None, f"none of {MAX_SEEDS} seeds shows it"
    assert run_seed(seed).acknowledged
