"""Interfaces that the deferred coordinator needs from other packages. No behaviour.

Its log is a `runtime.CoordinatorLog` of the topic `__penstock_deferred`.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from penstock.coordinators.deferred.half_values import ReadUpTo
from penstock.coordinators.deferred.values import Target
from penstock.model.errors import ErrorCode


class DeliveryReply(NamedTuple):
    code: ErrorCode
    base_offset: int = -1  # of the batch in its target, also of one that it had; -1: not known


class DeliveryChannel(Protocol):
    async def send(self, target: Target, batch: bytearray) -> DeliveryReply:
        """Appends the batch to the target's partition, on any broker, with all in-sync replicas,
        whatever its size: it cannot be divided any more.

        NONE or DUPLICATE_SEQUENCE_NUMBER: it is there. UNKNOWN_TOPIC_ID: its topic is deleted.
        After any other error, the caller sends it again."""


class HalfCluster(Protocol):
    """What halves need to know of the cluster. All coroutines may raise Refusal: ask later."""

    def find_partition(self, topic: str, key: str) -> Target | None:
        """The partition of the key; None: there is no such topic."""

    def find_expired(self, topic: str, target: Target) -> Target | None:
        """Where expired halves for the target of this topic go."""

    async def committed(self, group: str, checks: Collection[Target]) -> Mapping[Target, int]:
        """The offsets that the group has committed in its topic of checks."""

    async def decision_ends(self, group: str) -> Collection[ReadUpTo]:
        """The ends of the decisions topics of the group, as of now or later."""
