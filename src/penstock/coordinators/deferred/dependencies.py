"""Interfaces that the deferred coordinator needs from other packages. No behaviour.

Its log is a `runtime.CoordinatorLog` of the topic `__penstock_deferred`.
"""

from typing import Protocol

from penstock.coordinators.deferred.values import Target
from penstock.model.errors import ErrorCode


class DeliveryChannel(Protocol):
    async def send(self, target: Target, batch: bytearray) -> ErrorCode:
        """Appends the batch to the target's partition, on any broker, with all in-sync replicas,
        whatever its size: it cannot be divided any more.

        NONE or DUPLICATE_SEQUENCE_NUMBER: it is there. UNKNOWN_TOPIC_ID: its topic is deleted.
        After any other error, the caller sends it again."""
