"""A value that is built on first use, so that starting a broker costs only what it needs."""

from collections.abc import Callable
from typing import Generic, TypeVar

Value_co = TypeVar("Value_co", covariant=True)


class Lazy(Generic[Value_co]):
    """`get` builds the value once. Owned by the event loop.

    `build` must not call `get` of the same Lazy.
    """

    def __init__(self, build: Callable[[], Value_co]) -> None:
        self._build = build
        self._value: Value_co | None = None

    @property
    def is_built(self) -> bool:
        return self._value is not None

    def get(self) -> Value_co:
        if self._value is None:
            self._value = self._build()
        return self._value

    def find(self) -> Value_co | None:
        """The value if it has been built."""
        return self._value
