"""Plans the reassignments that balance a cluster: racks, replicas, bytes on disk, leaders.

Pure: a layout in, a plan out, the same plan for the same layout. The goals are in this order, and
a later one never undoes an earlier one. No partition ever gets fewer replicas. A second plan after
the first is empty.
"""

from collections.abc import Mapping

from penstock.controller.balancing.disk_goal import (
    ReplicaExchange,
    carry_out,
    cost_of,
    distance_after,
    even_out_bytes,
    is_possible,
)
from penstock.controller.balancing.draft import LayoutDraft
from penstock.controller.balancing.layout import (
    BalanceGoals,
    BalancePlan,
    BrokerShare,
    CannotBalance,
    ClusterLayout,
    PlannedReassignment,
    shares,
    with_reassignments,
)
from penstock.controller.balancing.leader_goal import even_out_leaders
from penstock.controller.balancing.replica_goals import (
    DiskBand,
    cover_racks,
    even_out_counts,
    leave_removed_brokers,
)
from penstock.model.cluster import BrokerId

MAX_ROUNDS = 20
NO_GOALS = BalanceGoals()


def plan_balance(layout: ClusterLayout, goals: BalanceGoals = NO_GOALS) -> BalancePlan:
    """Raises CannotBalance if removed brokers leave too few for some partition's replicas."""
    _check(layout, goals)
    draft = LayoutDraft(layout, goals)
    band = DiskBand(draft)
    stays = leave_removed_brokers(draft, band)
    if not goals.only_removed:
        cover_racks(draft)
        _even_out(draft, band)
        while cover_racks(draft):  # a replica that went elsewhere left its rack to another one
            _even_out(draft, band)
        even_out_leaders(draft)
    reassignments = in_turns(draft.reassignments())
    assert all(len(planned.after) == len(planned.before) for planned in reassignments)
    after = with_reassignments(layout, reassignments)
    return BalancePlan(
        reassignments=tuple(reassignments),
        before=_shares(layout),
        after=_shares(after),
        stays=tuple(stays),
    )


def _check(layout: ClusterLayout, goals: BalanceGoals) -> None:
    alive = ", ".join(map(str, sorted(layout.racks))) or "none"
    unknown = sorted(goals.added - layout.racks.keys())
    if unknown:
        raise CannotBalance(
            f"broker {unknown[0]} is not alive, so it gets no replicas: {alive} are"
        )
    twice = sorted(goals.removed & (goals.added | goals.excluded))
    if twice:
        raise CannotBalance(f"broker {twice[0]} is to be removed, and to keep or get replicas")
    holders = {broker for partition in layout.partitions for broker in partition.replicas}
    absent = sorted(goals.removed - layout.racks.keys() - holders)
    if absent:
        raise CannotBalance(
            f"there is no broker {absent[0]}: it is not alive and has no replicas; alive: {alive}"
        )


def _even_out(draft: LayoutDraft, band: DiskBand) -> None:
    """Until neither counts nor bytes can be improved, and nothing is copied that need not be."""
    _settle(draft, band)
    for _ in range(MAX_ROUNDS):
        if not _copy_less(draft, band):
            return
        _settle(draft, band)


def _settle(draft: LayoutDraft, band: DiskBand) -> None:
    """Ends, because the counts get more even with each round, and in a round the bytes do."""
    even_out_counts(draft, band)
    while even_out_bytes(draft, band):
        even_out_counts(draft, band)


def _copy_less(draft: LayoutDraft, band: DiskBand) -> bool:
    """Leave replicas where they were, or copy smaller ones instead, if nothing gets less even.
    Returns whether anything changed."""
    has_changed = False
    for index in sorted(range(len(draft.sizes)), key=lambda index: (-draft.sizes[index], index)):
        for broker in list(draft.replicas[index]):
            if broker in draft.origins[index]:
                continue
            better = _find_cheaper(draft, band, index, broker)
            if better is not None:
                carry_out(draft, better)
                has_changed = True
    return has_changed


def _find_cheaper(
    draft: LayoutDraft, band: DiskBand, index: int, broker: BrokerId
) -> ReplicaExchange | None:
    """The cheapest exchange that returns this replica to a broker that had it."""
    options: list[tuple[int, int, ReplicaExchange]] = []
    for home in sorted(draft.origins[index] & frozenset(draft.balanced)):
        if home in draft.replicas[index]:
            continue
        before = band.pair_distance(draft.bytes_on[home], draft.bytes_on[broker])
        smaller = (
            taken for taken in draft.on_broker[home] if draft.sizes[taken] < draft.sizes[index]
        )
        for taken in (None, *smaller):
            exchange = ReplicaExchange(index, taken, broker, home)
            cost = cost_of(draft, exchange)
            if cost >= 0 or distance_after(draft, band, exchange) > before:
                continue
            if is_possible(draft, exchange):
                options.append((cost, -1 if taken is None else taken, exchange))
    return min(options, default=(0, 0, None))[-1]


def in_turns(reassignments: list[PlannedReassignment]) -> list[PlannedReassignment]:
    """Changes of order first, because they copy nothing; then round robin over the brokers that
    get replicas, so that some at once are spread over many brokers."""
    queues: dict[tuple[BrokerId, ...], list[PlannedReassignment]] = {}
    for planned in reassignments:
        queues.setdefault(planned.adding[:1], []).append(planned)
    turns = queues.pop((), [])
    longest = max(map(len, queues.values()), default=0)
    for position in range(longest):
        turns += [queue[position] for _, queue in sorted(queues.items()) if position < len(queue)]
    return turns


def _shares(layout: ClusterLayout) -> Mapping[BrokerId, BrokerShare]:
    return shares(
        layout.racks,
        ((partition.replicas, partition.size_bytes) for partition in layout.partitions),
    )
