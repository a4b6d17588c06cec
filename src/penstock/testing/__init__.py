"""Shipped test parts: `Cluster`, a simulated disk, a model engine, simulations."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    """When first used: whoever wants a part alone does not load the others."""
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.testing.cluster import Cluster

    return Cluster
