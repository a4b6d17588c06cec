"""The source of producer ids, as controller and transaction coordinator share it. No behaviour."""

from typing import Protocol


class ProducerIds(Protocol):
    async def next_producer_id(self) -> int:
        """An id that no producer of this cluster has had (blocks of ids are allocated in the
        metadata store). May raise Refusal."""
