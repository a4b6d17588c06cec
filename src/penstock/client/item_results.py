"""Results of a request for several items, of which each succeeds or fails for itself. Pure."""

from collections.abc import Mapping
from typing import TypeVar

from penstock.client.errors import ClientError, ItemsFailed

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def settle(answers: Mapping[_Item, _Result | ClientError]) -> dict[_Item, _Result]:
    """The results, if every item has one. Raises the error of a single item, ItemsFailed for
    several: it has the results of the others."""
    results: dict[_Item, _Result] = {}
    errors: dict[_Item, ClientError] = {}
    for item, answer in answers.items():
        if isinstance(answer, ClientError):
            errors[item] = answer
        else:
            results[item] = answer
    if not errors:
        return results
    if len(answers) == 1:
        raise next(iter(errors.values()))
    raise ItemsFailed(errors, results)
