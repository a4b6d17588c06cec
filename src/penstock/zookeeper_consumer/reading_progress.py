"""How far a member has read the partitions that it was given. Pure.

Three offsets of each: where it started, the next one after what the program holds or held
(position), the next one after what it has processed (done). Invariant: done never falls below the
start, so that a late message of an earlier assignment cannot move another member's commit back.
"""

from collections.abc import Iterable, Mapping

from penstock.client.message import Message
from penstock.model.ids import TopicPartition

Offsets = dict[TopicPartition, int]


class ReadingProgress:
    """Owned by a member; guarded by its reader's lock."""

    def __init__(self) -> None:
        self.position: Offsets = {}  # of every partition ever read
        self.done: Offsets = {}  # of the assigned partitions in which something was processed
        self._start: Offsets = {}  # of the assigned partitions
        self._current: Offsets = {}  # next offsets of what the program processes now

    @property
    def has_current(self) -> bool:
        return bool(self._current)

    def start_of(self, tp: TopicPartition) -> int:
        """Negative: not assigned."""
        return self._start.get(tp, -1)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """A partition that is read on at its position keeps what is done and in process; in others
        that is another member's, or comes again."""
        kept = {tp for tp, start in starts.items() if self.position.get(tp) == start}
        self._current = {tp: offset for tp, offset in self._current.items() if tp in kept}
        self.done = {tp: offset for tp, offset in self.done.items() if tp in kept}
        before = self._start
        self._start = {
            tp: before.get(tp, start) if tp in kept else start for tp, start in starts.items()
        }
        self.position |= starts

    def note_returned(self, messages: Iterable[Message]) -> None:
        for message in messages:
            tp = TopicPartition(message.topic, message.partition)
            self._current[tp] = self.position[tp] = message.offset + 1

    def finish_current(self) -> None:
        """The program asks for more, so that it has processed what it holds."""
        for tp, offset in self._current.items():
            if offset > self._start.get(tp, offset):
                self.done[tp] = max(offset, self.done.get(tp, 0))
        self._current = {}

    def drop_current(self) -> None:
        self._current = {}
