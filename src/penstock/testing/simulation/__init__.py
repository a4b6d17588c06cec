"""A whole cluster in one thread, under a clock of its own, from a seed: brokers with the production
rules and storage, a network that loses and delays, disks that crash, and a judge that watches.
"""

from penstock.testing.simulation.judge import Violation
from penstock.testing.simulation.run import SimulationPlan, Story, run_seed

__all__ = ["SimulationPlan", "Story", "Violation", "run_seed"]
