"""Limits what one request may name: elements of arrays and tagged fields, counted while decoding.

A count is charged before anything is made of it, so that a few bytes per element cannot cost the
broker a hundred times their size (CVE-2026-111108). Not the bytes of a frame: those are limited
before it is received. A struct counts twice, because an object with fields is made of it; a number
or a text counts once.
"""

from typing import Final

from penstock.protocol.malformed import RequestOverLimit

MAX_ELEMENTS: Final = 60_000  # 10,000 topics with a partition each, and half as much again
MAX_TAGGED_FIELDS: Final = 20_000  # unknown ones are skipped, which takes time as well
STRUCT_ELEMENTS: Final = 2
# A frame of so few bytes stays within every limit that can be set: an element takes a byte or more.
SMALL_FRAME_BYTES: Final = 4096
LEAST_MAX_ELEMENTS: Final = SMALL_FRAME_BYTES * STRUCT_ELEMENTS
_UNBOUNDED: Final = 2**59  # never used up, and the largest that is fast to count down


class RequestBudget:
    """Owned by the decoding of one request."""

    __slots__ = ("_max_elements", "_max_tagged_fields", "elements", "tagged_fields")

    def __init__(
        self, max_elements: int = MAX_ELEMENTS, max_tagged_fields: int = MAX_TAGGED_FIELDS
    ) -> None:
        self._max_elements = self.elements = max_elements  # left
        self._max_tagged_fields = self.tagged_fields = max_tagged_fields  # left

    @classmethod
    def unbounded(cls) -> "RequestBudget":
        """For what a peer of our choice sends: responses, and records of our own logs."""
        return cls(_UNBOUNDED, _UNBOUNDED)

    @property
    def used_elements(self) -> int:
        return self._max_elements - self.elements

    def charge(self, field: str, elements: int) -> None:
        self.elements -= elements
        if self.elements < 0:
            raise self.exceeded(field)

    def charge_tagged_fields(self, count: int) -> None:
        self.tagged_fields -= count
        if self.tagged_fields < 0:
            raise RequestOverLimit(f"more than {self._max_tagged_fields} tagged fields")

    def exceeded(self, field: str) -> RequestOverLimit:
        return RequestOverLimit(
            f"more than {self._max_elements} elements (penstock.request.max.elements) at {field}"
        )


# Shared by the requests in small frames: making and checking a budget would cost more than reading
# them. Only differences of `elements` mean something.
SMALL_FRAME_BUDGET: Final = RequestBudget.unbounded()
