"""The server-side assignors of consumer groups, by name. Pure functions.

Invariant: every partition of a subscribed topic is assigned to exactly one of its subscribers.
"""

from collections.abc import Mapping

from penstock.coordinators.group.consumer.assignors.problem import Assignor
from penstock.coordinators.group.consumer.assignors.range import assign_ceil_ranges, assign_ranges
from penstock.coordinators.group.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
    "ceil-range": assign_ceil_ranges,
}
