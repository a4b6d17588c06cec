"""Which folder the seconds of a test belong to."""

from tests.seconds import folder_of


def test_unit_tests_count_for_their_package() -> None:
    assert folder_of("tests/unit/storage/engine/test_read.py::test_a[1/2]") == "tests/unit/storage"
    assert folder_of("tests/unit/test_tidy.py::test_a") == "tests/unit"


def test_all_other_tests_count_for_their_class() -> None:
    assert folder_of("tests/clients/groups/test_a.py::test_b") == "tests/clients"
    assert folder_of("tests/cluster/test_a.py::TestC::test_b") == "tests/cluster"
