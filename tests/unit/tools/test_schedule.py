"""Which tests a worker gets: computing tests next to waiting ones, the longest first."""

from tests.schedule import choose_scope, is_waiting, scope_of

SEEDS = "tests/simulation/test_seeds.py::test_seed[1]"
LAW = "tests/properties/test_law.py::test_law"
UNIT = "tests/unit/test_a.py"


def test_groups_files_and_long_tests_are_scopes() -> None:
    assert scope_of("tests/clients/test_a.py::test_b[1@2]@clients") == "clients"
    assert scope_of("tests/unit/test_a.py::TestC::test_b[1@2]") == UNIT
    assert scope_of(SEEDS) == SEEDS


def test_files_that_start_their_own_processes_are_spread_over_the_workers() -> None:
    file = "tests/cluster/test_a.py"
    assert scope_of(f"{file}::test_b[1@2]@cluster") == f"cluster {file}"
    example = "tests/examples/test_a.py::test_b"
    assert scope_of(f"{example}@cluster") == f"cluster {example}"
    assert is_waiting(f"cluster {file}")


def test_all_workers_but_one_get_waiting_tests() -> None:
    waiting = [UNIT, SEEDS, "kafka", "spark"]
    assert choose_scope(waiting, waiting_at_work=0, workers=4) == "spark"
    assert choose_scope(waiting, waiting_at_work=2, workers=4) == "spark"
    assert choose_scope(waiting, waiting_at_work=3, workers=4) == SEEDS


def test_files_of_scenarios_wait_although_they_have_no_group() -> None:
    scenario = "tests/scenarios/test_a.py"
    assert is_waiting(scope_of(f"{scenario}::test_b"))
    assert choose_scope([UNIT, scenario], waiting_at_work=3, workers=4) == UNIT


def test_workers_continue_with_the_other_kind_when_one_is_done() -> None:
    assert choose_scope([UNIT, LAW, SEEDS], waiting_at_work=0, workers=4) == SEEDS
    assert choose_scope([UNIT, LAW], waiting_at_work=0, workers=4) == LAW
    assert choose_scope(["kafka", "new"], waiting_at_work=3, workers=4) == "kafka"


def test_a_single_worker_takes_everything() -> None:
    assert choose_scope([UNIT, "kafka"], waiting_at_work=0, workers=1) == UNIT
    assert choose_scope(["kafka"], waiting_at_work=0, workers=1) == "kafka"
