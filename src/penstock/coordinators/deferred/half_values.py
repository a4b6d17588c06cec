"""What is known about half ids, and what is read from half topics. No behaviour."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from penstock.coordinators.deferred.values import DeferredMessage, Target
from penstock.model.errors import ErrorCode

NOT_DELIVERED = -1  # an offset


class HalfStatus(Enum):
    PENDING = "pending"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    EXPIRED = "expired"  # after the last check; its messages are kept for a while


class SentCheck(NamedTuple):
    """A check that is in its topic, or on its way there."""

    number: int  # of its message
    target: Target
    offset: int  # or NOT_DELIVERED
    sent_ms: int


class Half(NamedTuple):
    """What is known about a half id."""

    status: HalfStatus
    since_ms: int  # when the status was reached
    checks: int = 0  # that were delivered to a member of the group
    next_check_ms: int = 0  # while no check is under way
    check: SentCheck | None = None
    copied: int = 0  # messages that are in the topic of expired halves


class HeldMessage(NamedTuple):
    number: int
    offset: int  # of its record
    size_bytes: int
    target: Target
    due_ms: int
    delay_ms: int
    topic: str


class HalfWord(Enum):
    """The values of a decisions topic."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    CHECK = "check"  # ask again now
    REVIVE = "revive"  # an expired one waits for a decision again


class HalfDecision(NamedTuple):
    half_id: str
    word: HalfWord


class ReadUpTo(NamedTuple):
    source: Target
    offset: int


class HalfIntake(NamedTuple):
    """What was read from a partition of a half topic, or of its decisions, for one group."""

    group: str
    topic: str  # whose halves these are
    source: Target
    base_offset: int
    end_offset: int
    log_start_offset: int  # of the source: what was below is gone
    expired: Target  # where halves go that came too late, or cannot be understood
    messages: Sequence[DeferredMessage] = ()  # without a hold: it cannot be understood
    decisions: Sequence[HalfDecision] = ()
    after: Sequence[ReadUpTo] = ()  # other sources that must have been read so far


class IntakeReply(NamedTuple):
    code: ErrorCode
    next_offset: int = 0  # up to which the source is read, durably
    committed: int = 0
    rolled_back: int = 0
    ignored: int = 0  # decisions that came too late, or for an id that is not known
    is_full: bool = False  # the shard has as many halves as it may: no more should be produced
