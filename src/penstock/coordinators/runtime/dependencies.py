"""What a coordinator needs to keep its state in a topic; the broker joins them. No behaviour.

The log of a partition is known by its number: each coordinator has one topic of its own.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.model.errors import ErrorCode
from penstock.purgatory.timing_wheel import Timer

NOT_WRITTEN = -1

Done = Callable[[ErrorCode], None]
Call = Callable[[], None]
Report = Callable[[str], None]


class LogEnds(NamedTuple):
    start: int  # where its records begin
    committed: int  # the high watermark: every replica in sync has what is below
    end: int


class LogChunk(NamedTuple):
    batches: bytes  # whole ones
    end_offset: int  # where the next read goes on


class Append(NamedTuple):
    """How far an append got at once. `code`: None if it is written and `done` will tell the rest;
    NONE if it is committed already; else why it was refused, or is not known to be committed."""

    base_offset: int  # NOT_WRITTEN where it was refused
    code: ErrorCode | None


class CoordinatorLog(Protocol):
    """The topic's partitions on this broker. Nothing here blocks but what awaits."""

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""

    async def ensure_topic(self) -> ErrorCode:
        """Create it unless it is there; NONE when this broker knows of it."""

    def find_leadership(self, partition: int) -> object | None:
        """Stands for one time of leading, by its identity; None while another broker leads."""

    def ends(self, partition: int) -> LogEnds:
        """All 0 where there is no such log here."""

    def max_batch_bytes(self, partition: int) -> int: ...

    async def read(self, partition: int, start: int, max_bytes: int) -> LogChunk:
        """From `start` to the log's end, so many bytes at most or one batch. May raise Refusal."""

    def append(
        self, partition: int, batches: Sequence[bytearray], *, timeout_ms: int, done: Done
    ) -> Append:
        """All in one write. `done` later and once, if the answer's code is None."""

    def when_committed(self, partition: int, offset: int, *, timeout_ms: int, done: Done) -> None:
        """`done`, perhaps at once, when everything below `offset` is committed, or why not."""


class CoordinatorTimers(Protocol):
    """`waiting.LoopTimers`, or a clock that tests move."""

    def add_after(self, delay_ms: int, value: Call, /) -> Timer[Call]: ...

    def cancel(self, timer: Timer[Call], /) -> bool: ...
