"""The interface that allocates producer ids, shared by controller and transaction coordinator."""

from typing import Protocol


class ProducerIds(Protocol):
    async def next_producer_id(self) -> int:
        """An id that no producer of this cluster has had: the metadata store allocates blocks of
        ids. May raise Refusal."""
