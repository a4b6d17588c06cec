"""Results of several items: all of them, or an error that has both sides."""

import pickle

import pytest

from penstock.client.errors import (
    GroupNotFound,
    ItemsFailed,
    RefusedByBroker,
    TopicAlreadyExists,
)
from penstock.client.item_results import settle
from penstock.model.errors import ErrorCode

EXISTS = RefusedByBroker("create topic 'a'", ErrorCode.TOPIC_ALREADY_EXISTS)


def test_results_of_all_items_are_returned() -> None:
    assert settle({"a": 1, "b": 2}) == {"a": 1, "b": 2}


def test_a_single_item_raises_its_own_error() -> None:
    with pytest.raises(TopicAlreadyExists) as caught:
        settle({"a": EXISTS})
    assert caught.value is EXISTS


def test_several_items_raise_an_error_with_the_results_of_the_others() -> None:
    with pytest.raises(ItemsFailed, match=r"^1 of 2 failed: create topic 'a': ") as caught:
        settle({"a": EXISTS, "b": 2})
    assert (caught.value.errors, caught.value.results) == ({"a": EXISTS}, {"b": 2})


def test_many_errors_are_counted_and_the_first_ones_told() -> None:
    errors = {n: RefusedByBroker(f"item {n}", ErrorCode.INVALID_REQUEST) for n in range(5)}
    with pytest.raises(ItemsFailed, match=r"5 of 5 failed: item 0: .*item 2: .*; and 2 more$"):
        settle(errors)


def test_codes_that_programs_tell_apart_have_a_class() -> None:
    error = RefusedByBroker("describe group 'g'", ErrorCode.GROUP_ID_NOT_FOUND)
    assert (type(error), error.code) == (GroupNotFound, ErrorCode.GROUP_ID_NOT_FOUND)
    assert type(RefusedByBroker("x", ErrorCode.INVALID_REQUEST)) is RefusedByBroker


@pytest.mark.parametrize("error", [EXISTS, ItemsFailed({"a": EXISTS}, {"b": 2})])
def test_errors_survive_pickling(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back)) == (type(error), str(error))
