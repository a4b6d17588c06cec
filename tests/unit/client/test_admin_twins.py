"""`penstock.Admin` and `penstock.AsyncAdmin` are the same operations, blocking and not."""

import inspect

import pytest

import penstock

OPERATIONS = sorted(
    name
    for name, member in inspect.getmembers(penstock.AsyncAdmin, inspect.iscoroutinefunction)
    if not name.startswith("_") and name != "close"
)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_declared_and_documented_once(name: str) -> None:
    blocking, twin = getattr(penstock.Admin, name), getattr(penstock.AsyncAdmin, name)
    assert inspect.signature(blocking) == inspect.signature(twin)
    assert blocking.__doc__ == twin.__doc__ is not None
    assert not inspect.iscoroutinefunction(blocking)


def test_no_operation_is_missing_from_either_twin() -> None:
    blocking = {name for name in vars(penstock.Admin) if not name.startswith("_")}
    assert blocking == {*OPERATIONS, "close"}


@pytest.mark.parametrize("admin", [penstock.Admin, penstock.AsyncAdmin])
def test_an_address_is_checked_at_once(admin: type) -> None:
    with pytest.raises(penstock.InvalidAddress, match="write HOST:PORT"):
        admin("nowhere")


@pytest.mark.parametrize("admin", [penstock.Admin, penstock.AsyncAdmin])
@pytest.mark.parametrize("timeout_s", [0, -1, "3", True])
def test_a_timeout_must_be_positive(admin: type, timeout_s: object) -> None:
    with pytest.raises(ValueError, match="write seconds, more than 0"):
        admin("127.0.0.1:9092", timeout_s=timeout_s)
