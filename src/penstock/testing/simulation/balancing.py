"""The balancing of a simulated cluster: the production's decisions and planner, with no thread.

Partitions have sizes of their own, because those of simulated logs are too small to matter.
"""

from collections.abc import Sequence
from random import Random

from penstock.controller.balancing.auto_balance import (
    BalancerConfig,
    BalancerMemory,
    layout_of,
    look,
    with_plan,
    without,
    without_plan,
)
from penstock.controller.balancing.layout import BalanceGoals, CannotBalance
from penstock.controller.balancing.planner import plan_balance
from penstock.controller.interface import ApiError, Reassignment
from penstock.controller.state import ClusterState
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checker import Violation
from penstock.testing.simulation.world import SESSION_MS, World

CLOCK_RATE = 500  # of a balancer's clock: its minute between two plans is a session here
CONFIG = BalancerConfig(
    replacement_delay_ms=SESSION_MS * CLOCK_RATE,
    is_balancing=True,
    delay_ms=SESSION_MS // 2 * CLOCK_RATE,
    at_once=2,
)


class SimulatedBalancer:
    """A controller's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._memory: BalancerMemory | None = None

    def look(self, state: ClusterState) -> list[Reassignment]:
        now_ms = self._world.schedule.now_ms * CLOCK_RATE
        step = look(self._memory, state, CONFIG, now_ms)
        self._memory = step.memory
        self._world.undone += sum(one.event == "replacement_undone" for one in step.events)
        if step.goals is not None:
            self._memory = self._planned(step.memory, state, step.goals, now_ms)
        return step.reassignments

    def take_refused(
        self, begun: Sequence[Reassignment], results: Sequence[ApiError | None]
    ) -> None:
        assert self._memory is not None
        refused = [one.tp for one, error in zip(begun, results, strict=True) if error is not None]
        self._memory = without(self._memory, refused)

    def _planned(
        self, memory: BalancerMemory, state: ClusterState, goals: BalanceGoals, now_ms: int
    ) -> BalancerMemory:
        try:
            plan = plan_balance(layout_of(state, replica_sizes(self._world)), goals)
        except CannotBalance as error:
            return without_plan(memory, str(error), now_ms)[0]
        return with_plan(memory, plan, goals, now_ms)[0]


def replica_sizes(world: World) -> dict[TopicPartition, int]:
    return {tp: Random(tp.partition).randint(0, 50 << 20) for tp in world.tps}


def check_balanced(world: World) -> None:
    """A further plan is empty."""
    active = next(
        broker.active
        for broker in world.brokers.values()
        if broker.active is not None and not broker.active.is_over
    )
    plan = plan_balance(layout_of(active.state, replica_sizes(world)))
    if plan.reassignments:
        raise Violation(f"the cluster is not balanced in the end: {plan.reassignments}")
