"""Decides what becomes of half messages: held until the first decision on them. Pure.

What is read from a source is taken once, in order, by its offsets: a repeat changes nothing. All
halves and decisions of a group come to one shard, so that "first" is first written there. A
decision is taken only after the half topics were read to their ends as of it, so that no id commits
in part; halves that come later go to the topic of expired ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.coordinators.deferred.half_records import HalfIdRecord, SourceRecord
from penstock.coordinators.deferred.half_values import (
    Half,
    HalfDecision,
    HalfIntake,
    HalfStatus,
    HalfWord,
    IntakeReply,
)
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.errors import ErrorCode
from penstock.protocol.half_headers import HALF_GROUP, HALF_ID, HALF_REASON, HALF_TOPIC

DECIDED = {
    HalfWord.COMMIT: HalfStatus.COMMITTED,
    HalfWord.ROLLBACK: HalfStatus.ROLLED_BACK,
}


class HalfLimits(NamedTuple):
    first_check_ms: int
    check_interval_ms: int
    max_check_interval_ms: int
    max_checks: int


def next_interval_ms(checks: int, limits: HalfLimits) -> int:
    """After so many checks were delivered: doubled by each, up to a limit."""
    return min(limits.check_interval_ms << min(checks - 1, 30), limits.max_check_interval_ms)


def take_intake(
    state: DeferredShardState, intake: HalfIntake, limits: HalfLimits, *, now_ms: int
) -> CoordinatorResult[IntakeReply, DeferredRecord]:
    """All of it or nothing; the reply says from where on the source is to be read."""
    position = state.halves.position(intake.group, intake.source)
    start = max(position, intake.log_start_offset)
    is_read = intake.base_offset == start and intake.end_offset > start
    if not is_read or _is_early(state, intake):
        return CoordinatorResult(reply=IntakeReply(ErrorCode.NONE, start))
    changes = _Changes(state, intake, limits, now_ms)
    records: list[DeferredRecord] = list(changes.take_messages())
    changes.take_decisions()
    records = [*changes.half_records(), *records]
    records.append(SourceRecord(intake.group, intake.source, intake.end_offset))
    reply = IntakeReply(
        ErrorCode.NONE,
        intake.end_offset,
        changes.committed,
        changes.rolled_back,
        changes.ignored,
    )
    return CoordinatorResult(reply=reply, records=records)


def _is_early(state: DeferredShardState, intake: HalfIntake) -> bool:
    """Whether halves may be unread that were sent before these decisions."""
    return any(
        state.halves.position(intake.group, source) < offset for source, offset in intake.after
    )


class _Changes:
    """The half ids as they are after a part of the intake."""

    def __init__(
        self, state: DeferredShardState, intake: HalfIntake, limits: HalfLimits, now_ms: int
    ) -> None:
        self.committed = self.rolled_back = self.ignored = 0
        self._state = state
        self._intake = intake
        self._limits = limits
        self._now_ms = now_ms
        self._changed: dict[HalfKey, Half] = {}

    def half_records(self) -> Iterator[HalfIdRecord]:
        for key, half in self._changed.items():
            yield HalfIdRecord(key, half)

    # -- halves ----------------------------------------------------------------------------

    def take_messages(self) -> Iterator[MessageRecord]:
        for number, message in enumerate(self._intake.messages, start=self._state.next_number):
            yield MessageRecord(number, self._hold_or_refuse(message))

    def _hold_or_refuse(self, message: DeferredMessage) -> DeferredMessage:
        if message.hold is None:  # the reader says why
            return message._replace(target=self._intake.expired, due_ms=self._now_ms)
        half = self._find(message.hold.key)
        if half is None:
            first_check_ms = self._now_ms + self._limits.first_check_ms
            self._changed[message.hold.key] = Half(
                HalfStatus.PENDING, self._now_ms, next_check_ms=first_check_ms
            )
        elif half.status is not HalfStatus.PENDING:
            reason = f"it came after its id was {half.status.value}"
            return as_expired(message, message.hold.key, self._intake.topic, reason)._replace(
                target=self._intake.expired, due_ms=self._now_ms
            )
        return message

    # -- decisions -------------------------------------------------------------------------

    def take_decisions(self) -> None:
        for decision in self._intake.decisions:
            if not self._take_decision(decision):
                self.ignored += 1

    def _take_decision(self, decision: HalfDecision) -> bool:
        """False: it changes nothing, because another came first or the id is not known."""
        key = HalfKey(self._intake.group, decision.half_id)
        half = self._find(key)
        if half is None or not self._is_of_topic(key, half):
            return False
        if decision.word is HalfWord.REVIVE:
            return self._revive(key, half)
        if decision.word is HalfWord.CHECK:
            return self._check_now(key, half)
        wanted = DECIDED[decision.word]
        if half.status is not HalfStatus.PENDING:
            return half.status is wanted  # a repeat gets what it wants
        self._changed[key] = Half(wanted, self._now_ms, half.checks)
        if wanted is HalfStatus.COMMITTED:
            self.committed += 1
        else:
            self.rolled_back += 1
        return True

    def _is_of_topic(self, key: HalfKey, half: Half) -> bool:
        """Whoever may decide for one topic decides nothing about others. What is decided already
        does not change anyway."""
        if half.status in (HalfStatus.COMMITTED, HalfStatus.ROLLED_BACK):
            return True
        return any(held.topic == self._intake.topic for held in self._state.halves.held(key))

    def _check_now(self, key: HalfKey, half: Half) -> bool:
        if half.status is not HalfStatus.PENDING:
            return False
        checks = min(half.checks, self._limits.max_checks - 1)  # it is asked once more, at least
        self._changed[key] = half._replace(checks=checks, next_check_ms=self._now_ms, check=None)
        return True

    def _revive(self, key: HalfKey, half: Half) -> bool:
        if half.status is HalfStatus.EXPIRED:
            self._changed[key] = Half(HalfStatus.PENDING, self._now_ms, next_check_ms=self._now_ms)
        return half.status in (HalfStatus.EXPIRED, HalfStatus.PENDING)

    def _find(self, key: HalfKey) -> Half | None:
        return self._changed.get(key) or self._state.halves.halves.get(key)


def as_expired(message: DeferredMessage, key: HalfKey, topic: str, reason: str) -> DeferredMessage:
    """As it is in the topic of expired halves: with all that a new attempt needs."""
    headers = (
        *message.headers,
        (HALF_ID, key.half_id.encode()),
        (HALF_GROUP, key.group.encode()),
        (HALF_TOPIC, topic.encode()),
        (HALF_REASON, reason.encode()),
    )
    return message._replace(headers=headers, hold=None)
