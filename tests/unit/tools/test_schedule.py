"""What workers of a test run get: computing beside waiting, the longest first."""

from tests.schedule import choose_scope, scope_of

SEEDS = "tests/simulation/test_seeds.py::test_seed[1]"
LAW = "tests/properties/test_law.py::test_law"
UNIT = "tests/unit/test_a.py"


def test_a_group_is_a_scope_and_so_is_a_file_and_a_long_test() -> None:
    assert scope_of("tests/cluster/test_a.py::test_b[1@2]@cluster") == "cluster"
    assert scope_of("tests/unit/test_a.py::TestC::test_b[1@2]") == UNIT
    assert scope_of(SEEDS) == SEEDS


def test_all_workers_but_one_wait_and_one_computes() -> None:
    waiting = [UNIT, SEEDS, "kafka", "cluster"]
    assert choose_scope(waiting, groups_at_work=0, workers=4) == "cluster"
    assert choose_scope(waiting, groups_at_work=2, workers=4) == "cluster"
    assert choose_scope(waiting, groups_at_work=3, workers=4) == SEEDS


def test_when_one_kind_is_done_the_other_goes_on() -> None:
    assert choose_scope([UNIT, LAW, SEEDS], groups_at_work=0, workers=4) == SEEDS
    assert choose_scope([UNIT, LAW], groups_at_work=0, workers=4) == LAW
    assert choose_scope(["kafka", "new"], groups_at_work=3, workers=4) == "kafka"


def test_a_single_worker_takes_everything() -> None:
    assert choose_scope([UNIT, "kafka"], groups_at_work=0, workers=1) == UNIT
    assert choose_scope(["kafka"], groups_at_work=0, workers=1) == "kafka"
