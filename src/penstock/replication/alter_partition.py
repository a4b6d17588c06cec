"""The seam through which a leader asks the controller to change who is in sync. Decides nothing.

A broker wires a sender of AlterPartition here (KIP-497); the simulation its own. Invariant: until
its answer says otherwise, a proposed set may be the cluster's already.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult

Answered = Callable[[AlterPartitionResult], None]


class AlterPartitionSender(Protocol):
    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        """Send it to the controller, with others that wait if that helps. `done` is called once,
        on the event loop, never from within this call; also when no controller can be reached."""
