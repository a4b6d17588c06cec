"""Simulates a whole cluster in one thread and in virtual time, from a seed.

Brokers have the production's rules and storage; the network loses and delays messages, disks crash,
and a checker verifies invariants after every step.
"""

from penstock.testing.simulation.checker import Violation
from penstock.testing.simulation.run import BALANCED, SimulationPlan, SimulationResult, run_seed

__all__ = ["BALANCED", "SimulationPlan", "SimulationResult", "Violation", "run_seed"]
