"""Builds kio's response classes of any version with one call; fields that a version lacks are
omitted.

No bytes here; a missing field raises kio's TypeError at once.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.schemas import describe_fields, get_response_schema


class Shape:
    """One class of one version. `shape["topics"]` is the shape of the entries of that field."""

    __slots__ = ("_entity", "_nested", "names")

    def __init__(self, entity: type) -> None:
        self._entity = entity
        fields = describe_fields(entity)
        self.names = frozenset(field.name for field in fields)
        self._nested: Mapping[str, Shape] = {
            field.name: Shape(field.entity) for field in fields if field.entity is not None
        }

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> "Shape":
        return self._nested[name]

    def __call__(self, **values: Any) -> Any:
        names = self.names
        return self._entity(**{name: value for name, value in values.items() if name in names})


@cache
def response_shape(key: ApiKey, version: int) -> Shape:
    return Shape(get_response_schema(key, version))
