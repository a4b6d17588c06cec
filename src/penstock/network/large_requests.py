"""Lets large requests take turns with everything else, so that many of them delay nobody for long.

A request with very many elements takes tens of milliseconds, however strict its limits are, and a
thousand clients can send one at the same moment. Invariants: large requests of one kind start only
until `TURN_S` of a window is used up, then in the next turn of the event loop; each kind has its
share, so that none holds up another for ever. Addresses take turns. Small requests never wait here,
and large ones that are as brief use up nothing: ordinary batches make nobody wait.
"""

from collections.abc import Callable
from enum import Enum
from time import perf_counter
from typing import Final

from penstock.network.address_turns import AddressTurns

LARGE_BYTES: Final = 4096  # a smaller frame cannot take long
LIGHT_BYTES: Final = 64 * 1024
LIGHT_S: Final = 0.005  # of processor time: a busy machine makes no request heavy
BRIEF_S: Final = 0.0005  # by the clock: a batch of 16 KiB takes a quarter of it
TURN_S: Final = 0.005
# Longer than a turn of the loop mostly takes: a callback in each turn would cost a broker of large
# batches a system call for each of them.
WINDOW_S: Final = 2 * TURN_S

Resume = Callable[[], object]


class Kind(Enum):
    """By how long a large request is expected to take."""

    LIGHT = 0
    UNKNOWN = 1  # the connection's first, and not very large
    HEAVY = 2


class LargeRequests:
    """Owned by the event loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._waiting: dict[Kind, AddressTurns[Resume]] = {kind: AddressTurns() for kind in Kind}
        self._spent_s = 0.0  # by large requests of one kind, in this window
        self._window_end_s = 0.0
        self.is_used_up = False  # whether `must_wait` has to be asked; nearly never
        self._is_scheduled = False

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def must_wait(self, host: str, resume: Resume, kind: Kind) -> bool:
        """If so, `resume` is called once, when it is this one's turn."""
        if not self.is_used_up:
            return False
        self._waiting[kind].add(host, resume)
        return True

    def note(self, started_s: float, elapsed_s: float) -> None:
        """A large request has taken so long."""
        if elapsed_s < BRIEF_S:
            return
        if started_s >= self._window_end_s:
            self._window_end_s = started_s + WINDOW_S
            if not self.is_used_up:
                self._spent_s = 0.0
        self._spent_s += elapsed_s
        if self._spent_s >= TURN_S:
            self._use_up()

    def _begin_turn(self) -> None:
        """Resumed ones come before those that arrive in this turn."""
        self._is_scheduled = False
        self._reset()
        for waiting in self._waiting.values():
            if waiting:
                self._reset()
            ends_s = self._clock() + TURN_S
            while waiting and not self.is_used_up:
                waiting.take_next()()
                if self._clock() >= ends_s:  # also many brief ones take long together
                    self._use_up()
        assert self._is_scheduled or not self.waiting_count, "nobody would resume them"

    def _use_up(self) -> None:
        self.is_used_up = True
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._begin_turn)

    def _reset(self) -> None:
        self._spent_s, self.is_used_up = 0.0, False


def kind_of(frame_bytes: int, last_s: float | None) -> Kind:
    """What to expect of a connection's large request after its last one took so long (None: there
    was none)."""
    if frame_bytes > LIGHT_BYTES:
        return Kind.HEAVY
    if last_s is None:
        return Kind.UNKNOWN
    return Kind.LIGHT if last_s < LIGHT_S else Kind.HEAVY
