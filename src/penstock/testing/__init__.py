"""Shipped test tools: `Broker`, `Cluster`, `ManualClock`, `SimulatedDisk`, and the simulation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster
    from penstock.testing.embedded_broker import Broker
    from penstock.testing.manual_clock import ManualClock
    from penstock.testing.simulated_disk import SimulatedDisk

__all__ = ["Broker", "Cluster", "ManualClock", "SimulatedDisk"]

_MODULES = {
    "Broker": "embedded_broker",
    "Cluster": "cluster",
    "ManualClock": "manual_clock",
    "SimulatedDisk": "simulated_disk",
}


def __getattr__(name: str) -> Any:
    """Imported on first use, so that using one part does not load the others."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
