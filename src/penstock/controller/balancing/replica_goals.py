"""Replicas leave removed brokers, cover racks, and are even in number, with few bytes copied.

Pure, and history decides nothing: whether a step is possible depends on the layout alone, and what
was planned before only chooses among the possible ones. So a second plan finds nothing.
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from penstock.controller.balancing.draft import LayoutDraft
from penstock.controller.balancing.layout import CannotBalance
from penstock.model.cluster import BrokerId


class DiskBand:
    """The bytes that a balanced broker may have: the mean, give or take the tolerance."""

    def __init__(self, draft: LayoutDraft) -> None:
        goals = draft.goals
        total = sum(draft.bytes_on[broker] for broker in draft.balanced)
        total += sum(draft.bytes_on[broker] for broker in goals.removed)
        mean = total / max(1, len(draft.balanced))
        margin = max(mean * goals.disk_tolerance_percent / 100, goals.disk_slack_bytes)
        self.low, self.high = mean - margin, mean + margin

    def distance(self, size_bytes: float) -> float:
        """How far outside of the band."""
        return max(0.0, size_bytes - self.high, self.low - size_bytes)

    def pair_distance(self, one: float, other: float) -> float:
        """Also how much further apart than the band is wide. Convex: it falls only if the two come
        nearer to each other, so that a search for less of it ends."""
        apart = abs(one - other) - (self.high - self.low)
        return self.distance(one) + self.distance(other) + max(0.0, apart)


def leave_removed_brokers(draft: LayoutDraft, band: DiskBand) -> list[str]:
    """Large replicas first, because small ones then fill what is left. Returns what stays."""
    stays: list[str] = []
    removed = draft.goals.removed
    affected = [index for index, on in enumerate(draft.replicas) if removed.intersection(on)]
    quota = _quota(draft)
    for index in sorted(affected, key=lambda index: (-draft.sizes[index], index)):
        partition = draft.partitions[index]
        for source in [broker for broker in draft.replicas[index] if broker in removed]:
            if partition.is_fixed:
                stays.append(
                    f"{partition.tp} stays on broker {source}: it has no leader, or is being "
                    "reassigned already"
                )
                continue
            draft.replace(index, source, _best_target(draft, band, index, source, quota))
    return stays


def _quota(draft: LayoutDraft) -> int:
    """The most replicas of a broker once all are even."""
    total = sum(map(draft.count_on, {*draft.balanced, *draft.goals.removed}))
    return -(-total // max(1, len(draft.balanced)))


def _best_target(
    draft: LayoutDraft, band: DiskBand, index: int, source: BrokerId, quota: int
) -> BrokerId:
    targets = [broker for broker in draft.balanced if broker not in draft.replicas[index]]
    preferred = [broker for broker in targets if broker in draft.goals.added]
    if not targets:
        raise CannotBalance(
            f"{draft.partitions[index].tp} has {len(draft.replicas[index])} replicas, and without "
            f"broker {source} too few brokers are left for them; add a broker, or reduce its "
            "replicas with penstock cluster reassign"
        )

    def preference(broker: BrokerId) -> tuple[object, ...]:
        return (
            -draft.rack_change(index, source, broker),
            draft.count_on(broker) >= quota,
            draft.bytes_on[broker] + draft.sizes[index] > band.high,
            draft.bytes_on[broker],
            draft.count_on(broker),
            draft.of_topic[broker, draft.partitions[index].tp.topic],
            broker,
        )

    return min(preferred or targets, key=preference)


def cover_racks(draft: LayoutDraft) -> bool:
    """One replica at a time goes to a rack that its partition does not cover, while there is
    one. Returns whether anything changed."""
    has_changed = False
    for index in range(len(draft.partitions)):
        while not draft.is_fixed(index) and draft.lacks_racks(index):
            steps = [
                (draft.count_on(target) - draft.count_on(source), source, target)
                for source in draft.replicas[index]
                if source in draft.balanced
                for target in draft.balanced
                if draft.may_replace(index, source, target)
                and draft.rack_change(index, source, target) > 0
            ]
            if not steps:
                break
            _, source, target = min(steps)
            draft.replace(index, source, target)
            has_changed = True
    return has_changed


def even_out_counts(draft: LayoutDraft, band: DiskBand) -> None:
    """As long as one broker has two replicas more than another, one replica goes there, or one
    goes to a broker between them and another from there."""
    while (path := _find_path(draft)) is not None:
        steps = _choose(draft, band, path) or _choose(draft, None, path)
        assert steps is not None, f"no replica can follow {path}"
        for index, source, target in steps:
            draft.replace(index, source, target)


def _find_path(draft: LayoutDraft) -> list[BrokerId] | None:
    """From a broker with many replicas to one with at least two fewer; the shortest."""
    by_count = sorted(draft.balanced, key=lambda broker: (draft.count_on(broker), broker))
    for source in reversed(by_count):
        if draft.count_on(source) - draft.count_on(by_count[0]) < 2:
            return None
        path = _find_path_from(draft, source, by_count)
        if path is not None:
            return path
    return None


def _find_path_from(
    draft: LayoutDraft, source: BrokerId, by_count: list[BrokerId]
) -> list[BrokerId] | None:
    limit = draft.count_on(source) - 2
    came_from: dict[BrokerId, BrokerId] = {}
    queue = deque([source])
    while queue:
        at = queue.popleft()
        for target in by_count:
            if target in (at, source) or target in came_from:
                continue
            if draft.find_candidate(at, target) is None:
                continue
            came_from[target] = at
            if draft.count_on(target) <= limit:
                path = _trace(came_from, source, target)
                if len(path) == 2 or _choose(draft, None, path):
                    return path
            queue.append(target)
    return None


def _trace(
    came_from: dict[BrokerId, BrokerId], source: BrokerId, target: BrokerId
) -> list[BrokerId]:
    path = [target]
    while path[-1] != source:
        path.append(came_from[path[-1]])
    return path[::-1]


def _choose(
    draft: LayoutDraft, band: DiskBand | None, path: list[BrokerId]
) -> list[tuple[int, BrokerId, BrokerId]] | None:
    """A partition for each step, another for each, so that the steps do not depend on each other.
    With a band the best ones; these may leave none for a later step."""
    steps: list[tuple[int, BrokerId, BrokerId]] = []
    taken: set[int] = set()
    for source, target in pairwise(path):
        if band is None:
            index = next(_candidates(draft, source, target, taken), None)
        else:
            index = _best_replica(draft, band, source, target, taken)
        if index is None:
            return None
        taken.add(index)
        steps.append((index, source, target))
    return steps


def _candidates(
    draft: LayoutDraft, source: BrokerId, target: BrokerId, taken: set[int]
) -> Iterator[int]:
    return (
        index
        for index in draft.on_broker[source]
        if index not in taken and draft.may_replace(index, source, target)
    )


def _best_replica(
    draft: LayoutDraft, band: DiskBand, source: BrokerId, target: BrokerId, taken: set[int]
) -> int | None:
    """One that is copied anyway, else one of the size that brings both brokers into the band with
    as many replicas as they have to exchange."""
    apart = max(1, (draft.count_on(source) - draft.count_on(target)) // 2)
    needed = max(0.0, draft.bytes_on[source] - band.high, band.low - draft.bytes_on[target])
    ideal = needed / apart

    def preference(index: int) -> tuple[object, ...]:
        topic = draft.partitions[index].tp.topic
        return (
            draft.cost(index, source, target) > 0,
            abs(draft.sizes[index] - ideal),
            draft.of_topic[target, topic] - draft.of_topic[source, topic],
            index,
        )

    return min(_candidates(draft, source, target, taken), key=preference, default=None)
