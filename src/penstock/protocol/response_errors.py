"""Finds the error codes of a response, at any depth, for the counters of errors.

Only of responses that are messages: handlers that encode theirs by hand count their own errors.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from penstock.protocol.schemas import FieldShape, WireMessage, describe_fields

_CODE = "error_code"

_Finder = Callable[[Sequence[Any]], list[int]]  # takes messages of one class
_FINDERS: dict[type[WireMessage], _Finder] = {}  # one per message class, so bounded


def find_errors(message: WireMessage) -> list[int]:
    """The codes other than NONE, as often as they occur: Kafka counts them so."""
    return _finder_of(type(message))((message,))


def _finder_of(entity: type[WireMessage]) -> _Finder:
    finder = _FINDERS.get(entity)
    if finder is None:
        finder = _FINDERS[entity] = _make_finder(entity)
    return finder


def _make_finder(entity: type[WireMessage]) -> _Finder:
    shapes = describe_fields(entity)
    below = [(_getter(shape), _finder_of(shape.entity)) for shape in shapes if shape.entity]
    below = [(get, finder) for get, finder in below if finder is not _find_none]
    has_code = any(shape.name == _CODE for shape in shapes)
    if not below:
        return _find_own if has_code else _find_none

    def find(messages: Sequence[Any]) -> list[int]:
        codes = _find_own(messages) if has_code else []
        for message in messages:
            for get, find_below in below:
                codes += find_below(get(message))
        return codes

    return find


def _getter(shape: FieldShape) -> Callable[[Any], Sequence[Any]]:
    get = attrgetter(shape.name)
    if shape.is_array:
        return (lambda message: get(message) or ()) if shape.is_nullable else get
    return lambda message: () if get(message) is None else (get(message),)


def _find_own(messages: Sequence[Any]) -> list[int]:
    return [message.error_code for message in messages if message.error_code]


def _find_none(messages: Sequence[Any]) -> list[int]:
    return []
