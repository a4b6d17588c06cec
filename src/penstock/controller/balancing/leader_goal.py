"""Preferred leaders are even in number, by the order of replicas alone: nothing is copied.

Pure. The search follows chains of brokers, so that it ends with the most even counts that the
replicas allow, and it takes the shortest chain, so that few partitions get another leader.
"""

from collections import Counter, deque

from penstock.controller.balancing.draft import LayoutDraft
from penstock.model.cluster import BrokerId

Chain = list[tuple[int, BrokerId]]  # each partition, and the broker that leads it instead


def even_out_leaders(draft: LayoutDraft) -> None:
    led: dict[BrokerId, set[int]] = {broker: set() for broker in draft.balanced}
    for index, replicas in enumerate(draft.replicas):
        if replicas and replicas[0] in led:
            led[replicas[0]].add(index)
    while (chain := _find_chain(draft, led)) is not None:
        for index, broker in chain:
            led[draft.replicas[index][0]].remove(index)
            draft.lead(index, broker)
            led[broker].add(index)


def _find_chain(draft: LayoutDraft, led: dict[BrokerId, set[int]]) -> Chain | None:
    by_count = sorted(led, key=lambda broker: (-len(led[broker]), broker))
    for source in by_count:
        if len(led[source]) - len(led[by_count[-1]]) < 2:
            return None
        chain = _find_chain_from(draft, led, source)
        if chain is not None:
            return chain
    return None


def _find_chain_from(
    draft: LayoutDraft, led: dict[BrokerId, set[int]], source: BrokerId
) -> Chain | None:
    """Breadth first over the brokers that have a replica of what another leads."""
    came_from: dict[BrokerId, tuple[int, BrokerId]] = {}
    queue = deque([source])
    while queue:
        at = queue.popleft()
        for target, index in sorted(_successors(draft, led, at).items()):
            if target == source or target in came_from:
                continue
            came_from[target] = (index, at)
            if len(led[target]) <= len(led[source]) - 2:
                return _trace(came_from, source, target)
            queue.append(target)
    return None


def _successors(
    draft: LayoutDraft, led: dict[BrokerId, set[int]], leader: BrokerId
) -> dict[BrokerId, int]:
    """By broker, the partition that it could lead instead: one that is reassigned anyway, else one
    of the topic of which it leads fewest."""
    topics = Counter(draft.partitions[index].tp.topic for index in led[leader])
    best: dict[BrokerId, tuple[bool, int, int]] = {}
    for index in led[leader]:
        if draft.is_fixed(index):
            continue
        partition = draft.partitions[index]
        is_unchanged = frozenset(draft.replicas[index]) == draft.origins[index]
        preference = (is_unchanged, -topics[partition.tp.topic], index)
        for broker in draft.replicas[index][1:]:
            if broker in led and (broker not in best or preference < best[broker]):
                best[broker] = preference
    return {broker: index for broker, (_, _, index) in best.items()}


def _trace(
    came_from: dict[BrokerId, tuple[int, BrokerId]], source: BrokerId, target: BrokerId
) -> Chain:
    chain: Chain = []
    at = target
    while at != source:
        index, before = came_from[at]
        chain.append((index, at))
        at = before
    return chain
