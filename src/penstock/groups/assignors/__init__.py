"""Who gets which partitions: the assignors that a broker offers to consumer groups, by name.

Pure functions. Invariant: every partition of a topic that somebody subscribes to goes to exactly
one of its subscribers.
"""

from collections.abc import Mapping

from penstock.groups.assignors.problem import Assignor
from penstock.groups.assignors.ranges import assign_ranges
from penstock.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
