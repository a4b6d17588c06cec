"""Bytes on disk become even within a tolerance, by exchanges that keep the numbers of replicas.

Pure. Every exchange brings two brokers nearer to the band, so that the search ends; which one is
chosen is what copies fewest bytes per byte gained.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from penstock.controller.balancing.draft import LayoutDraft
from penstock.controller.balancing.replica_goals import DiskBand
from penstock.model.cluster import BrokerId

NEIGHBOURS = 2  # replicas looked at on each side of the size that would fit best
PARTNERS = 8  # brokers that one exchanges with: those that are furthest from it


class ReplicaExchange(NamedTuple):
    given: int  # the partition whose replica goes from `source` to `target`
    taken: int | None  # and the one that comes back; None: nothing does
    source: BrokerId
    target: BrokerId


def even_out_bytes(draft: LayoutDraft, band: DiskBand) -> bool:
    """Returns whether anything was exchanged."""
    has_changed = False
    while (exchange := _find_exchange(draft, band)) is not None:
        carry_out(draft, exchange)
        has_changed = True
    return has_changed


def carry_out(draft: LayoutDraft, exchange: ReplicaExchange) -> None:
    draft.replace(exchange.given, exchange.source, exchange.target)
    if exchange.taken is not None:
        draft.replace(exchange.taken, exchange.target, exchange.source)


def is_possible(draft: LayoutDraft, exchange: ReplicaExchange) -> bool:
    given, taken, source, target = exchange
    if taken is None:
        is_even = draft.count_on(source) > draft.count_on(target)
        return is_even and draft.may_replace(given, source, target)
    return (
        given != taken
        and draft.may_replace(given, source, target)
        and draft.may_replace(taken, target, source)
    )


def distance_after(draft: LayoutDraft, band: DiskBand, exchange: ReplicaExchange) -> float:
    """Of both brokers from the band, and from each other where racks keep both outside of it."""
    moved = moved_bytes(draft, exchange)
    return band.pair_distance(
        draft.bytes_on[exchange.source] - moved, draft.bytes_on[exchange.target] + moved
    )


def moved_bytes(draft: LayoutDraft, exchange: ReplicaExchange) -> int:
    """Net, from source to target."""
    back = 0 if exchange.taken is None else draft.sizes[exchange.taken]
    return draft.sizes[exchange.given] - back


def cost_of(draft: LayoutDraft, exchange: ReplicaExchange) -> int:
    """More bytes to copy; below zero if there are fewer."""
    given, taken, source, target = exchange
    back = 0 if taken is None else draft.cost(taken, target, source)
    return draft.cost(given, source, target) + back


def _find_exchange(draft: LayoutDraft, band: DiskBand) -> ReplicaExchange | None:
    outside = [broker for broker in draft.balanced if band.distance(draft.bytes_on[broker]) > 0]
    outside.sort(key=lambda broker: (-band.distance(draft.bytes_on[broker]), broker))
    for broker in outside:
        best = min(_gains(draft, band, broker), default=None)
        if best is not None:
            return best[-1]
    return None


def _gains(
    draft: LayoutDraft, band: DiskBand, broker: BrokerId
) -> Iterator[tuple[float, int, int, ReplicaExchange]]:
    """The exchanges that bring this broker and another nearer to the band, to be compared."""
    is_full = draft.bytes_on[broker] > band.high
    others = [other for other in draft.balanced if other != broker]
    others.sort(key=lambda other: (draft.bytes_on[other] * (1 if is_full else -1), other))
    least = max(1.0, (band.high - band.low) / 1000)
    for other in others[:PARTNERS]:
        source, target = (broker, other) if is_full else (other, broker)
        before = band.pair_distance(draft.bytes_on[source], draft.bytes_on[target])
        for exchange in _candidates(draft, band, source, target):
            gain = before - distance_after(draft, band, exchange)
            if gain >= least and is_possible(draft, exchange):
                cost = cost_of(draft, exchange)
                taken = -1 if exchange.taken is None else exchange.taken
                yield (max(0, cost) / gain, exchange.given, taken, exchange)


def _candidates(
    draft: LayoutDraft, band: DiskBand, source: BrokerId, target: BrokerId
) -> Iterator[ReplicaExchange]:
    """For each replica of the source: alone, for the smallest of the target, and for those of the
    target whose size fits best."""
    needed = max(draft.bytes_on[source] - band.high, band.low - draft.bytes_on[target])
    sizes = draft.sizes
    by_size = sorted(draft.on_broker[target], key=lambda index: (sizes[index], index))
    sorted_sizes = [sizes[index] for index in by_size]
    for given in sorted(draft.on_broker[source]):
        yield ReplicaExchange(given, None, source, target)
        at = bisect_left(sorted_sizes, sizes[given] - needed)
        fitting = range(max(0, at - NEIGHBOURS), min(len(by_size), at + NEIGHBOURS))
        for position in {*fitting, *range(min(NEIGHBOURS, len(by_size)))}:
            yield ReplicaExchange(given, by_size[position], source, target)
