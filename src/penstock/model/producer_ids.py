"""The interface that allocates producer ids, shared by controller and transaction coordinator."""

from typing import Protocol

# Ids from here on are those of brokers that deliver deferred messages: a partition never forgets
# them, and clients may not use them. Others are allocated from 0 on.
FIRST_DELIVERER_ID = 1 << 62


class ProducerIds(Protocol):
    async def next_producer_id(self) -> int:
        """An id that no producer of this cluster has had: the metadata store allocates blocks of
        ids. May raise Refusal."""
