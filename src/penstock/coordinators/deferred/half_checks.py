"""Decides when the producers of a half are asked about it, and when it expires. Pure.

A check is a message in the topic of the group's checks. It counts once a member has consumed it:
the group's committed offset has passed it. A group that is away costs no checks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.coordinators.deferred.cancel import StoredMessage
from penstock.coordinators.deferred.half_records import HalfIdRecord
from penstock.coordinators.deferred.half_values import (
    NOT_DELIVERED,
    Half,
    HalfStatus,
    SentCheck,
)
from penstock.coordinators.deferred.halves import HalfLimits, as_expired, next_interval_ms
from penstock.coordinators.deferred.records import DeferredRecord, MessageRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey, Target
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.protocol.half_headers import (
    HALF_CHECK,
    HALF_GROUP,
    HALF_ID,
    HALF_RECORDS,
    HALF_TOPIC,
)

SENT_AGAIN_MS = 86_400_000  # a check that nobody consumes; its topic may have deleted it


class PlannedCheck(NamedTuple):
    key: HalfKey
    first: StoredMessage  # of its messages, as it was read
    target: Target


def find_due(state: DeferredShardState, key: HalfKey, now_ms: int) -> Half | None:
    """The half, if it is to be asked about, or to expire."""
    half = state.halves.halves.get(key)
    if half is None or half.status is not HalfStatus.PENDING or half.check is not None:
        return None
    return half if half.next_check_ms <= now_ms else None


def begin_checks(
    state: DeferredShardState, planned: Sequence[PlannedCheck], *, now_ms: int
) -> CoordinatorResult[None, DeferredRecord]:
    """Some may have been decided since they were read."""
    records: list[DeferredRecord] = []
    number = state.next_number
    for check in planned:
        half = find_due(state, check.key, now_ms)
        if half is None:
            continue
        message = _check_message(check, half, len(state.halves.held(check.key)), now_ms)
        sent = SentCheck(number, check.target, NOT_DELIVERED, now_ms)
        records += (
            MessageRecord(number, message),
            HalfIdRecord(check.key, half._replace(check=sent)),
        )
        number += 1
    return CoordinatorResult(reply=None, records=records)


def _check_message(check: PlannedCheck, half: Half, count: int, now_ms: int) -> DeferredMessage:
    """The first message of the id, so that whoever answers sees what it is about."""
    first = check.first.message
    assert first.hold is not None
    headers = (
        *first.headers,
        (HALF_ID, check.key.half_id.encode()),
        (HALF_GROUP, check.key.group.encode()),
        (HALF_TOPIC, first.hold.topic.encode()),
        (HALF_CHECK, str(half.checks + 1).encode()),
        (HALF_RECORDS, str(count).encode()),
    )
    return DeferredMessage(
        now_ms, check.target, None, now_ms, check.key.half_id.encode(), first.value, headers
    )


def count_delivered(
    state: DeferredShardState,
    checks: Iterable[tuple[HalfKey, SentCheck]],
    limits: HalfLimits,
    *,
    now_ms: int,
) -> CoordinatorResult[None, DeferredRecord]:
    """Members of the group have consumed these."""
    records = [
        HalfIdRecord(
            key,
            half._replace(
                checks=half.checks + 1,
                check=None,
                next_check_ms=now_ms + next_interval_ms(half.checks + 1, limits),
            ),
        )
        for key, check in checks
        if (half := _find_asked(state, key, check)) is not None
    ]
    return CoordinatorResult(reply=None, records=records)


def send_again(
    state: DeferredShardState, checks: Iterable[tuple[HalfKey, SentCheck]], *, now_ms: int
) -> CoordinatorResult[None, DeferredRecord]:
    """Those that nobody has consumed for long. They do not count."""
    records = [
        HalfIdRecord(key, half._replace(check=None, next_check_ms=now_ms))
        for key, check in checks
        if check.sent_ms + SENT_AGAIN_MS <= now_ms
        and (half := _find_asked(state, key, check)) is not None
    ]
    return CoordinatorResult(reply=None, records=records)


def _find_asked(state: DeferredShardState, key: HalfKey, check: SentCheck) -> Half | None:
    half = state.halves.halves.get(key)
    is_asked = half is not None and half.status is HalfStatus.PENDING and half.check == check
    return half if is_asked else None


def expire(
    state: DeferredShardState, key: HalfKey, limits: HalfLimits, *, now_ms: int
) -> CoordinatorResult[bool, DeferredRecord]:
    """After the last check, if every decision up to now has been read. The reply says whether."""
    half = find_due(state, key, now_ms)
    if half is None or half.checks < limits.max_checks:
        return CoordinatorResult(reply=False)
    expired = Half(HalfStatus.EXPIRED, now_ms, half.checks)
    return CoordinatorResult(reply=True, records=(HalfIdRecord(key, expired),))


def copy_expired(
    state: DeferredShardState,
    key: HalfKey,
    messages: Sequence[tuple[DeferredMessage, Target]],
    *,
    copied: int,
    now_ms: int,
) -> CoordinatorResult[None, DeferredRecord]:
    """The next messages of an expired id, after the `copied` first, go to its topic to be seen."""
    half = state.halves.halves.get(key)
    if half is None or half.status is not HalfStatus.EXPIRED or half.copied != copied:
        return CoordinatorResult(reply=None)
    reason = f"nobody decided in {half.checks} checks"
    records: list[DeferredRecord] = []
    for number, (message, target) in enumerate(messages, start=state.next_number):
        assert message.hold is not None
        seen = as_expired(message, key, message.hold.topic, reason)
        records.append(MessageRecord(number, seen._replace(target=target, due_ms=now_ms)))
    records.append(HalfIdRecord(key, half._replace(copied=copied + len(messages))))
    return CoordinatorResult(reply=None, records=records)


def forget_halves(
    state: DeferredShardState, *, decided_before_ms: int, expired_before_ms: int, limit: int
) -> list[DeferredRecord]:
    """First the messages of what was rolled back, then ids that nothing depends on any more."""
    records: list[DeferredRecord] = []
    for number in state.halves.dropped:
        if len(records) == limit:
            return records
        records.append(MessageRecord(number, None))
    for key, half in state.halves.halves.items():
        if len(records) == limit:
            return records
        if half.status is HalfStatus.EXPIRED and half.since_ms < expired_before_ms:
            records.append(HalfIdRecord(key, Half(HalfStatus.ROLLED_BACK, half.since_ms)))
        elif (
            half.status in (HalfStatus.COMMITTED, HalfStatus.ROLLED_BACK)
            and half.since_ms < decided_before_ms
            and not state.halves.is_live(key)
        ):
            records.append(HalfIdRecord(key, None))
    return records
