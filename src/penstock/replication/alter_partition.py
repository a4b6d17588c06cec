"""The interface through which a leader sends AlterPartition to the controller. Decides nothing.

A broker plugs in its AlterPartition client (KIP-497), the simulation its own. Invariant: until the
response says otherwise, the proposed ISR may already be the stored one.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult

Answered = Callable[[AlterPartitionResult], None]


class AlterPartitionSender(Protocol):
    def propose(self, proposal: AlterPartitionProposal, done: Answered) -> None:
        """Send it to the controller, batched with other pending proposals if that helps. `done` is
        called once, on the event loop and never from within this call, even if no controller can
        be reached."""
