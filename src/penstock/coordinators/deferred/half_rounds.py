"""Asks the producers of a shard's undecided halves, counts what they consumed, and gives up.

One round at a time: what is in the checks' topics, what is due, what has expired. Each step is
decided and committed by the shard. What cannot be done now, because a topic or a broker is away, is
tried in the next round and costs no check.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from penstock.coordinators.deferred.cancel import StoredMessage
from penstock.coordinators.deferred.counts import DeferredCounts
from penstock.coordinators.deferred.dependencies import HalfCluster
from penstock.coordinators.deferred.due_index import DueEntry
from penstock.coordinators.deferred.half_checks import (
    PlannedCheck,
    begin_checks,
    copy_expired,
    count_delivered,
    expire,
    find_due,
    send_again,
)
from penstock.coordinators.deferred.half_values import HeldMessage, SentCheck
from penstock.coordinators.deferred.halves import HalfLimits
from penstock.coordinators.deferred.records import DeferredRecord
from penstock.coordinators.deferred.state import DeferredShardState
from penstock.coordinators.deferred.target_delivery import Decide, ReplyType
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey, Target
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.errors import Refusal
from penstock.protocol.half_headers import CHECKS_SUFFIX

POLL_MS = 1_000  # of the groups' offsets, while checks are in their topics
CHECKS_AT_ONCE = 100
_COPIED_AT_ONCE = 100
_COPIED_BYTES = 1_000_000


class HalfShard(Protocol):
    """What a round needs of its shard."""

    state: DeferredShardState

    async def decide(self, decide: Decide[ReplyType], /) -> ReplyType | Failed: ...

    async def read_entries(self, entries: Sequence[DueEntry], /) -> list[DeferredMessage]:
        """May raise Refusal."""


class HalfRounds(NamedTuple):
    shard: HalfShard
    cluster: HalfCluster
    limits: Callable[[], HalfLimits]
    wall_ms: Callable[[], int]
    notes: RateLimitedLogger
    counts: DeferredCounts
    postponed: set[HalfKey]  # due, and to be looked at again

    def delay_ms(self) -> int | None:
        """Until the next round; None: there is nothing to do."""
        halves = self.shard.state.halves
        if halves.unanswered or halves.uncopied or self.postponed:
            soon_ms = POLL_MS
        else:
            soon_ms = None
        next_ms = halves.next_check_ms()
        if next_ms is None:
            return soon_ms
        left_ms = max(0, next_ms - self.wall_ms())
        return left_ms if soon_ms is None else min(soon_ms, left_ms)

    async def run(self) -> None:
        for key in self.postponed:
            self.shard.state.halves.look_again(key)
        self.postponed.clear()
        by_group: dict[str, list[tuple[HalfKey, SentCheck]]] = {}
        for key, check in self.shard.state.halves.unanswered.items():
            by_group.setdefault(key.group, []).append((key, check))
        for group, checks in by_group.items():
            await self._try(group, self._count(group, checks))
        await self._look_at_due()
        for key in list(self.shard.state.halves.uncopied):
            await self._try(key.group, self._copy(key))

    async def _try(self, group: str, work: Awaitable[None]) -> None:
        """One group holds up no other."""
        try:
            await work
        except Refusal as refusal:
            self.notes.warning(
                "half_messages_delayed",
                group,
                f"undecided halves of group {group} wait: {refusal}; trying again",
            )

    # -- checks in their topics ------------------------------------------------------------

    async def _count(self, group: str, checks: list[tuple[HalfKey, SentCheck]]) -> None:
        committed = await self.cluster.committed(group, {check.target for _, check in checks})
        passed = [
            (key, check) for key, check in checks if committed.get(check.target, -1) > check.offset
        ]
        if passed:
            await self.shard.decide(
                lambda state, now_ms: count_delivered(state, passed, self.limits(), now_ms=now_ms)
            )
        left = [check for check in checks if check not in passed]
        await self.shard.decide(lambda state, now_ms: send_again(state, left, now_ms=now_ms))

    # -- what is due -----------------------------------------------------------------------

    async def _look_at_due(self) -> None:
        now_ms = self.wall_ms()
        keys = self.shard.state.halves.take_checks(now_ms, CHECKS_AT_ONCE)
        self.postponed.update(keys)  # until they are decided
        by_group: dict[str, list[HalfKey]] = {}
        for key in keys:
            by_group.setdefault(key.group, []).append(key)
        for group, some in by_group.items():
            halves = [(key, find_due(self.shard.state, key, now_ms)) for key in some]
            limit = self.limits().max_checks
            ending = [key for key, half in halves if half is not None and half.checks >= limit]
            asking = [key for key, half in halves if half is not None and half.checks < limit]
            if asking:
                await self._try(group, self._ask(asking))
            if ending:
                await self._try(group, self._expire(group, ending))
        self.postponed.difference_update(
            [key for key in keys if find_due(self.shard.state, key, now_ms) is None]
        )

    async def _ask(self, keys: Sequence[HalfKey]) -> None:
        planned: list[PlannedCheck] = []
        for key in keys:
            target = self.cluster.find_partition(f"{key.group}{CHECKS_SUFFIX}", key.half_id)
            held = self.shard.state.halves.held(key)
            if target is None:
                self.notes.warning(
                    "half_check_not_sent",
                    key.group,
                    f"half {key.half_id!r} waits, but there is no topic {key.group}{CHECKS_SUFFIX} "
                    "to ask its producers; create it",
                )
            elif held:
                (message,) = await self.shard.read_entries([_entry(held[0])])
                planned.append(PlannedCheck(key, StoredMessage(held[0].number, message), target))
        if planned:
            await self.shard.decide(
                lambda state, now_ms: begin_checks(state, planned, now_ms=now_ms)
            )

    async def _expire(self, group: str, keys: Sequence[HalfKey]) -> None:
        """A decision that was made by now comes first."""
        ends = await self.cluster.decision_ends(group)
        halves = self.shard.state.halves
        if any(halves.position(group, source) < offset for source, offset in ends):
            return
        for key in keys:
            if await self.shard.decide(partial(self._decide_expiry, key)) is True:
                self.counts.expired += 1
                self.notes.warning(
                    "half_expired",
                    group,
                    f"half {key.half_id!r} of group {group} expired: its producers were asked "
                    f"{self.limits().max_checks} times and decided nothing; revive it with "
                    "`penstock half revive`",
                )

    def _decide_expiry(
        self, key: HalfKey, state: DeferredShardState, now_ms: int
    ) -> CoordinatorResult[bool, DeferredRecord]:
        return expire(state, key, self.limits(), now_ms=now_ms)

    # -- what has expired ------------------------------------------------------------------

    async def _copy(self, key: HalfKey) -> None:
        half = self.shard.state.halves.halves[key]
        some = _choose(self.shard.state.halves.held(key)[half.copied :])
        targets: list[Target] = []
        for held in some:
            target = self.cluster.find_expired(held.topic, held.target)
            if target is None:
                return  # its topic is deleted; nobody wants to see it
            targets.append(target)
        messages = await self.shard.read_entries([_entry(held) for held in some])
        await self.shard.decide(
            lambda state, now_ms: copy_expired(
                state,
                key,
                list(zip(messages, targets, strict=True)),
                copied=half.copied,
                now_ms=now_ms,
            )
        )


def _entry(held: HeldMessage) -> DueEntry:
    return DueEntry(0, held.number, held.offset, held.size_bytes, held.target)


def _choose(held: Sequence[HeldMessage]) -> list[HeldMessage]:
    """At least one, however large."""
    chosen: list[HeldMessage] = []
    size_bytes = 0
    for message in held[:_COPIED_AT_ONCE]:
        size_bytes += message.size_bytes
        if chosen and size_bytes > _COPIED_BYTES:
            break
        chosen.append(message)
    return chosen
