"""Every planted bug is found, and without it the same seed is fine."""

from itertools import chain

import pytest
from tests.profile import scaled
from tests.simulation.mutants import MUTANTS, Planted

from penstock.testing.simulation import Violation, run_seed

MOST = scaled(test=400, verify=2000, release=5000)


def find_seed(planted: Planted, first: int) -> int | None:
    """The first that shows the bug: the one that is known to, or any other."""
    for seed in chain([first], range(MOST)):  # other seeds, where the simulation has changed
        try:
            with planted():
                run_seed(seed)
        except Violation:
            return seed
    return None


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda item: item.__name__)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    seed = find_seed(planted, MUTANTS[planted])
    assert seed is not None, f"{MOST} seeds have not shown it"
    assert run_seed(seed).acknowledged
