"""Decides when the controller balances by itself, and what it begins, undoes or gives up.

Pure: time is an argument. Not the plan, which the planner makes. Nothing is begun while more
brokers are gone than a failure of single machines explains: then it is the network that failed.
Memory is not stored: the next controller starts all clocks anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.controller.balancing.layout import (
    BalanceGoals,
    BalancePlan,
    ClusterLayout,
    LayoutPartition,
    PlannedReassignment,
)
from penstock.controller.interface import Reassignment
from penstock.controller.reassignment import (
    find_reassignments,
    is_reassigning,
    origin_of,
    target_of,
)
from penstock.controller.state import ClusterState
from penstock.logs.levels import INFO, WARNING
from penstock.model.cluster import NO_BROKER, BrokerId, PartitionState
from penstock.model.ids import TopicPartition

RETRY_MS = 60_000  # between two plans that leave replicas where they are
GONE_SHARE = 10  # one in so many brokers may be gone, and one in any case

ReplicaBytes = Mapping[TopicPartition, int]  # of one replica


class BalancerConfig(NamedTuple):
    replacement_delay_ms: int = -1  # -1: off
    is_balancing: bool = False
    delay_ms: int = 60_000  # after the last change of the brokers
    gone_ms: int = 3_600_000  # with `is_balancing` and without a replacement delay
    at_once: int = 10

    @property
    def is_on(self) -> bool:
        return self.is_balancing or self.replacement_delay_ms >= 0

    @property
    def gone_after_ms(self) -> int:
        """From when on a broker is gone for good."""
        is_set = self.replacement_delay_ms >= 0
        return self.replacement_delay_ms if is_set else self.gone_ms


OFF = BalancerConfig()


class BalancerEvent(NamedTuple):
    level: int
    event: str
    message: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerMemory:
    live: frozenset[BrokerId]  # at the last look
    changed_ms: int  # when they changed last, or this controller was elected
    wants_balance: bool = True  # brokers have joined since the last plan, or the controller is new
    gone_since: Mapping[BrokerId, int] = field(default_factory=dict)
    pending: tuple[PlannedReassignment, ...] = ()
    under_way: Mapping[TopicPartition, PlannedReassignment] = field(default_factory=dict)
    done: tuple[TopicPartition, ...] = ()  # of the current plan
    replaced: frozenset[BrokerId] = frozenset()  # whose replicas the current plan replaces
    given_up: frozenset[BrokerId] = frozenset()  # not replaced, because somebody cancelled it
    not_before_ms: int = 0  # the next plan
    held: str = ""  # why nothing is begun although brokers are gone


class BalancerStep(NamedTuple):
    memory: BalancerMemory
    reassignments: list[Reassignment]  # to begin, or to cancel
    elect: tuple[TopicPartition, ...]  # whose preferred leader has changed
    goals: BalanceGoals | None  # a plan is wanted
    events: list[BalancerEvent]


def look(
    memory: BalancerMemory | None, state: ClusterState, config: BalancerConfig, now_ms: int
) -> BalancerStep:
    """`memory`: None at first, when this controller has just been elected."""
    if memory is None:
        live = frozenset(state.brokers)
        memory = BalancerMemory(live=live, changed_ms=now_ms, wants_balance=config.is_balancing)
    events: list[BalancerEvent] = []
    memory = _settled(memory, state, now_ms, events)
    memory, cancelled = _membership_noted(memory, state, config, now_ms, events)
    if cancelled:
        return BalancerStep(memory, cancelled, (), None, events)
    memory = _held(memory, state, now_ms, events)
    memory, stuck = _unblocked(memory, state, config, now_ms, events)
    if stuck:
        return BalancerStep(memory, stuck, (), None, events)
    if memory.pending and not memory.held:
        memory, begun = _begun(memory, state, config.at_once)
        return BalancerStep(memory, begun, (), None, events)
    if memory.pending or memory.under_way:
        return BalancerStep(memory, [], (), None, events)
    if memory.done or memory.replaced:
        done = memory.done
        text = f"balancing is finished: {len(done)} partitions have been reassigned"
        if done:
            events.append(BalancerEvent(INFO, "balance_finished", text, {"count": len(done)}))
        return BalancerStep(replace(memory, done=(), replaced=frozenset()), [], done, None, events)
    return BalancerStep(memory, [], (), _wanted(memory, config, now_ms), events)


def with_plan(
    memory: BalancerMemory, plan: BalancePlan, goals: BalanceGoals, now_ms: int
) -> tuple[BalancerMemory, list[BalancerEvent]]:
    """The plan was made for `memory.live`."""
    later = replace(
        memory,
        pending=plan.reassignments,
        replaced=goals.removed,
        wants_balance=False,
        not_before_ms=now_ms + RETRY_MS if goals.removed else 0,
        held="",
    )
    if not plan.reassignments:
        return replace(later, replaced=frozenset()), []
    removed = sorted(goals.removed)
    reason = (
        f"broker {', '.join(map(str, removed))} is gone" if removed else "the brokers have changed"
    )
    fields: dict[str, object] = {
        "count": len(plan.reassignments),
        "replicas": plan.copied_replicas,
        "bytes": plan.copied_bytes,
        "removed": removed,
        "reason": reason,
    }
    text = f"balancing, because {reason}: {len(plan.reassignments)} partitions are reassigned"
    return later, [BalancerEvent(INFO, "balance_planned", text, fields)]


def without_plan(
    memory: BalancerMemory, why: str, now_ms: int
) -> tuple[BalancerMemory, list[BalancerEvent]]:
    later = replace(memory, wants_balance=False, not_before_ms=now_ms + RETRY_MS, held=why)
    if memory.held == why:
        return later, []
    text = f"cannot balance: {why}"
    return later, [BalancerEvent(WARNING, "balance_held", text, {"reason": why})]


def without(memory: BalancerMemory, refused: Iterable[TopicPartition]) -> BalancerMemory:
    """Reassignments that were refused are not under way."""
    names = set(refused)
    remaining = {tp: one for tp, one in memory.under_way.items() if tp not in names}
    return replace(memory, under_way=remaining)


def layout_of(state: ClusterState, sizes: ReplicaBytes) -> ClusterLayout:
    return ClusterLayout(
        racks={broker: node.rack for broker, node in state.brokers.items()},
        partitions=tuple(
            LayoutPartition(
                TopicPartition(name, number),
                target_of(partition),
                sizes.get(TopicPartition(name, number), 0),
                is_fixed=partition.leader == NO_BROKER or is_reassigning(partition),
            )
            for name, topic in state.topics.items()
            if name not in state.deleting
            for number, partition in enumerate(topic.partitions)
        ),
    )


# The steps of a look.


def _settled(
    memory: BalancerMemory, state: ClusterState, now_ms: int, events: list[BalancerEvent]
) -> BalancerMemory:
    """What has finished is done; what somebody else has cancelled or changed ends the plan."""
    under_way, done, overtaken = {}, list(memory.done), 0
    for tp, one in memory.under_way.items():
        partition = _find(state, tp)
        if partition is None:
            continue  # deleted
        if is_reassigning(partition) and target_of(partition) == one.after:
            under_way[tp] = one
        elif not is_reassigning(partition) and partition.replicas == one.after:
            done.append(tp)
        else:
            overtaken += 1
    memory = replace(memory, under_way=under_way, done=tuple(done))
    if not overtaken:
        return memory
    text = (
        f"somebody has cancelled or changed {overtaken} reassignments of the balancing: "
        f"{len(memory.pending)} more are not begun"
    )
    fields: dict[str, object] = {"count": overtaken, "not_begun": len(memory.pending)}
    events.append(BalancerEvent(WARNING, "balance_cancelled", text, fields))
    given_up = memory.given_up | memory.replaced
    return replace(memory, pending=(), given_up=given_up, not_before_ms=now_ms + RETRY_MS)


def _membership_noted(
    memory: BalancerMemory,
    state: ClusterState,
    config: BalancerConfig,
    now_ms: int,
    events: list[BalancerEvent],
) -> tuple[BalancerMemory, list[Reassignment]]:
    """A change drops what was planned and not begun. Copies that replace replicas of a broker that
    is back are cancelled."""
    live = frozenset(state.brokers)
    gone = {
        broker: memory.gone_since.get(broker, now_ms) for broker in sorted(_holders(state) - live)
    }
    if live == memory.live:
        return replace(memory, gone_since=gone), []
    joined, returned = live - memory.live, memory.replaced & live
    cancelled = [tp for tp, one in memory.under_way.items() if returned.intersection(one.removing)]
    if cancelled:
        brokers = ", ".join(map(str, sorted(returned)))
        text = f"broker {brokers} is back: {len(cancelled)} replacements of replicas are cancelled"
        fields: dict[str, object] = {"brokers": sorted(returned), "count": len(cancelled)}
        events.append(BalancerEvent(INFO, "replacement_undone", text, fields))
    wants = config.is_balancing and bool(joined or memory.pending)
    later = replace(
        without(memory, cancelled),
        live=live,
        changed_ms=now_ms,
        gone_since=gone,
        pending=(),
        wants_balance=memory.wants_balance or wants,
        given_up=memory.given_up - live,
        not_before_ms=0,
        held="",
    )
    return later, [Reassignment(tp, None) for tp in cancelled]


def _held(
    memory: BalancerMemory, state: ClusterState, now_ms: int, events: list[BalancerEvent]
) -> BalancerMemory:
    """While too many brokers are gone no clock runs."""
    gone = memory.gone_since
    most = max(1, (len(memory.live) + len(gone)) // GONE_SHARE)
    if len(gone) <= most:
        return replace(memory, held="") if memory.held.startswith(_TOO_MANY) else memory
    held = f"{_TOO_MANY} {', '.join(map(str, sorted(gone)))} are gone at once"
    if held != memory.held:
        text = f"nothing is replaced: {held}, and at most {most} may be"
        fields: dict[str, object] = {"reason": held, "brokers": sorted(gone)}
        events.append(BalancerEvent(WARNING, "balance_held", text, fields))
    return replace(memory, held=held, gone_since=dict.fromkeys(gone, now_ms))


_TOO_MANY = "brokers"


def _unblocked(
    memory: BalancerMemory,
    state: ClusterState,
    config: BalancerConfig,
    now_ms: int,
    events: list[BalancerEvent],
) -> tuple[BalancerMemory, list[Reassignment]]:
    """A reassignment finishes only with all of its replicas: one to a broker that is gone for good,
    whoever has begun it, would keep this broker's replicas from being replaced for ever."""
    for_good = _gone_for_good(memory, config, now_ms)
    if not for_good:
        return memory, []
    waiting = {
        tp: partition
        for tp, partition in find_reassignments(state).items()
        if for_good.intersection(target_of(partition))
    }
    pending = tuple(one for one in memory.pending if not for_good.intersection(one.after))
    memory = replace(without(memory, waiting), pending=pending)
    stuck = [
        tp
        for tp, partition in waiting.items()
        if set(origin_of(partition)).intersection(partition.in_sync)  # else it is refused
    ]
    if not stuck:
        return memory, []
    brokers = ", ".join(map(str, sorted(for_good)))
    text = f"{len(stuck)} reassignments are cancelled: they wait for {brokers}, gone for good"
    fields: dict[str, object] = {"brokers": sorted(for_good), "count": len(stuck)}
    events.append(BalancerEvent(WARNING, "balance_stuck", text, fields))
    return memory, [Reassignment(tp, None) for tp in stuck]


def _begun(
    memory: BalancerMemory, state: ClusterState, at_once: int
) -> tuple[BalancerMemory, list[Reassignment]]:
    """As many as there is room for; what has changed since the plan was made is left out."""
    under_way = dict(memory.under_way)
    pending = list(memory.pending)
    begun: list[Reassignment] = []
    while pending and len(under_way) < at_once:
        one = pending.pop(0)
        partition = _find(state, one.tp)
        if partition is None or partition.replicas != one.before or partition.leader == NO_BROKER:
            continue
        under_way[one.tp] = one
        begun.append(Reassignment(one.tp, one.after))
    return replace(memory, pending=tuple(pending), under_way=under_way), begun


def _wanted(memory: BalancerMemory, config: BalancerConfig, now_ms: int) -> BalanceGoals | None:
    if memory.held.startswith(_TOO_MANY) or now_ms < memory.not_before_ms:
        return None
    for_good = _gone_for_good(memory, config, now_ms)
    if for_good:
        return BalanceGoals(removed=for_good, only_removed=not config.is_balancing)
    is_quiet = not memory.gone_since and now_ms - memory.changed_ms >= config.delay_ms
    if config.is_balancing and memory.wants_balance and is_quiet:
        return BalanceGoals()
    return None


def _gone_for_good(
    memory: BalancerMemory, config: BalancerConfig, now_ms: int
) -> frozenset[BrokerId]:
    return frozenset(
        broker
        for broker, since_ms in memory.gone_since.items()
        if now_ms - since_ms >= config.gone_after_ms and broker not in memory.given_up
    )


def _holders(state: ClusterState) -> set[BrokerId]:
    return {
        broker
        for name, topic in state.topics.items()
        if name not in state.deleting
        for partition in topic.partitions
        for broker in partition.replicas
    }


def _find(state: ClusterState, tp: TopicPartition) -> PartitionState | None:
    topic = state.find_topic(tp.topic)
    if topic is None or tp.partition >= len(topic.partitions):
        return None
    return topic.partitions[tp.partition]
