"""Shipped test parts: `Cluster`, `ManualClock`, a simulated disk, simulations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster
    from penstock.testing.manual_clock import ManualClock

__all__ = ["Cluster", "ManualClock"]

_MODULES = {"Cluster": "cluster", "ManualClock": "manual_clock"}


def __getattr__(name: str) -> Any:
    """Imported on first use, so that using one part does not load the others."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
