"""The half ids of one shard and the messages that wait for their decisions, as the log says.

Decides nothing. Changes by `replay` and `hold` alone, and by `remove` when a record goes. Which
checks are next and which are under way is derived. Invariant: a message is held, released or
dropped as the last record of its half id says, in whichever order a compacted log brings them.
"""

import heapq
from collections import Counter
from collections.abc import Sequence

from penstock.coordinators.deferred.half_values import (
    NOT_DELIVERED,
    Half,
    HalfStatus,
    HeldMessage,
    SentCheck,
)
from penstock.coordinators.deferred.values import HalfKey, Target


class HalfState:
    """Owned by its shard's state."""

    def __init__(self) -> None:
        self.halves: dict[HalfKey, Half] = {}
        self.positions: dict[tuple[str, Target], int] = {}  # of a group in a source
        self.dropped: dict[int, None] = {}  # rolled back; their records are not removed yet
        self.under_way: dict[int, HalfKey] = {}  # by the number of the check's message
        self.unanswered: dict[HalfKey, SentCheck] = {}  # checks that are in their topic
        self.uncopied: dict[HalfKey, None] = {}  # expired, and not all of it in its topic
        self.pending_since_ms: dict[HalfKey, int] = {}
        self.held_count = 0  # messages
        self._held: dict[HalfKey, list[HeldMessage]] = {}
        self._keys: dict[int, HalfKey] = {}  # of messages whose records are in the log
        self._live: Counter[HalfKey] = Counter()  # how many those are
        self._schedule: list[tuple[int, HalfKey]] = []  # a heap; some entries are outdated

    # -- replaying -------------------------------------------------------------------------

    def hold(self, key: HalfKey, message: HeldMessage) -> Half | None:
        """The half if it is committed already: then the message is not held."""
        if message.number in self._keys:
            return None
        self._keys[message.number] = key
        self._live[key] += 1
        half = self.halves.get(key)
        if half is not None and half.status is HalfStatus.COMMITTED:
            return half
        if half is not None and half.status is HalfStatus.ROLLED_BACK:
            self.dropped[message.number] = None
            return None
        self._held.setdefault(key, []).append(message)
        self.held_count += 1
        return None

    def replay(self, key: HalfKey, half: Half | None) -> list[HeldMessage]:
        """Those of its messages that are released by this."""
        self._forget_derived(key)
        if half is None:
            self.halves.pop(key, None)
            return []
        self.halves[key] = half
        if half.status is HalfStatus.PENDING:
            self._follow(key, half)
        elif half.status is HalfStatus.EXPIRED:
            if half.copied < len(self.held(key)):
                self.uncopied[key] = None
        elif half.status is HalfStatus.ROLLED_BACK:
            self.dropped.update((message.number, None) for message in self._take_held(key))
        else:
            return self._take_held(key)
        return []

    def _take_held(self, key: HalfKey) -> list[HeldMessage]:
        held = self._held.pop(key, [])
        self.held_count -= len(held)
        return held

    def _forget_derived(self, key: HalfKey) -> None:
        before = self.halves.get(key)
        if before is not None and before.check is not None:
            self.under_way.pop(before.check.number, None)
        self.unanswered.pop(key, None)
        self.uncopied.pop(key, None)
        self.pending_since_ms.pop(key, None)

    def _follow(self, key: HalfKey, half: Half) -> None:
        self.pending_since_ms[key] = half.since_ms
        if half.check is None:
            heapq.heappush(self._schedule, (half.next_check_ms, key))
        elif half.check.offset == NOT_DELIVERED:
            self.under_way[half.check.number] = key
        else:
            self.unanswered[key] = half.check

    def remove(self, number: int) -> None:
        """The record of a message is removed: it is delivered, or was dropped."""
        key = self._keys.pop(number, None)
        self.dropped.pop(number, None)
        if key is None:
            return
        self._live[key] -= 1
        if not self._live[key]:
            del self._live[key]

    # -- queries ---------------------------------------------------------------------------

    def position(self, group: str, source: Target) -> int:
        return self.positions.get((group, source), 0)

    def held(self, key: HalfKey) -> Sequence[HeldMessage]:
        return self._held.get(key, ())

    def is_live(self, key: HalfKey) -> bool:
        """Whether the log has messages whose fate depends on this id."""
        return key in self._live

    def next_check_ms(self) -> int | None:
        """When a half is to be looked at; None: none waits for that."""
        while self._schedule and not self._is_current(*self._schedule[0]):
            heapq.heappop(self._schedule)
        return self._schedule[0][0] if self._schedule else None

    def take_checks(self, now_ms: int, limit: int) -> list[HalfKey]:
        """Those to be looked at by now. They are not named again unless `look_again` says so or
        their records change."""
        keys: list[HalfKey] = []
        while len(keys) < limit:
            next_ms = self.next_check_ms()
            if next_ms is None or next_ms > now_ms:
                break
            keys.append(heapq.heappop(self._schedule)[1])
        return list(dict.fromkeys(keys))

    def look_again(self, key: HalfKey) -> None:
        """A check was taken and could not be decided: it is still due."""
        half = self.halves.get(key)
        if half is not None and half.status is HalfStatus.PENDING and half.check is None:
            heapq.heappush(self._schedule, (half.next_check_ms, key))

    def _is_current(self, next_ms: int, key: HalfKey) -> bool:
        half = self.halves.get(key)
        return (
            half is not None
            and half.status is HalfStatus.PENDING
            and half.check is None
            and half.next_check_ms == next_ms
        )

    def snapshot(self) -> object:
        """The durable state; equal for equal states."""
        return (
            dict(self.halves),
            dict(self.positions),
            frozenset(self.dropped),
            {key: tuple(held) for key, held in self._held.items()},
            dict(self._live),
        )
