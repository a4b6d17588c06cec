"""Deferred messages and what is known about them. No behaviour.

A shard gives each message a number, which is never used again.
"""

from enum import Enum
from typing import NamedTuple

from penstock.model.ids import TopicId
from penstock.protocol.records import RecordHeaders


class Target(NamedTuple):
    """Where messages are delivered to. A topic that is created anew is another target."""

    topic_id: TopicId
    partition: int


class DelayKey(NamedTuple):
    """By which a message can be cancelled or replaced."""

    topic_id: TopicId
    delay_id: str


class HalfKey(NamedTuple):
    """A half id belongs to a group of producers."""

    group: str
    half_id: str


class Hold(NamedTuple):
    """Why a message is held: its half id is not committed. `due_ms` counts if it is later than the
    commit with the delay."""

    key: HalfKey
    topic: str  # whose half it is
    delay_ms: int  # from the commit on


class DeferredMessage(NamedTuple):
    due_ms: int
    target: Target
    delay_id: str | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    hold: Hold | None = None  # None: it is delivered when it is due
    commit_delay_ms: int | None = None  # in a transaction: from its commit on, or when it is due

    def due_after(self, committed_ms: int) -> int:
        """When it is due if its transaction, if it is in one, is committed then."""
        if self.commit_delay_ms is None:
            return self.due_ms
        return max(self.due_ms, committed_ms + self.commit_delay_ms)

    @property
    def delay_key(self) -> DelayKey | None:
        return None if self.delay_id is None else DelayKey(self.target.topic_id, self.delay_id)


class InTransaction(NamedTuple):
    """The transaction that messages were sent in."""

    transactional_id: str
    is_added: bool  # by the broker (KIP-890); else its producer has added the target to it


class SequenceRange(NamedTuple):
    first: int
    last: int


class ProducerBatches(NamedTuple):
    """The latest batches of a producer in which messages were deferred to a target."""

    producer_epoch: int
    ranges: tuple[SequenceRange, ...]  # oldest first
    updated_ms: int


class Delivery(NamedTuple):
    """What a shard has sent to a target, or is going to."""

    sequence: int  # of the first of `numbers`, or of the next message that is sent
    numbers: tuple[int, ...]  # unconfirmed ones; a repeat sends the same, in this order


class MessageEnd(Enum):
    """How a message with a delay id has ended."""

    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class EndedMessage(NamedTuple):
    end: MessageEnd
    ended_ms: int
