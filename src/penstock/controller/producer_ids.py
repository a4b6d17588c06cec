"""Unique producer ids, allocated in blocks from /latest_producer_id_block.

A block belongs to the broker that wrote it; ids left over after a crash are never used.
"""

import asyncio
from contextlib import suppress

from penstock.controller.znodes import (
    PRODUCER_IDS,
    decode_last_producer_id,
    encode_producer_block,
)
from penstock.metadata_store.errors import BadVersion, NodeExists, NoNode
from penstock.metadata_store.interface import Session, Value
from penstock.model.cluster import BrokerId

BLOCK_SIZE = 1000
_LAST_POSSIBLE = 2**63 - 1


class ProducerIdsExhausted(Exception):
    """All 64-bit ids are allocated."""


class BlockProducerIds:
    """Implements ProducerIds. Owned by the event loop; one caller at a time allocates a block."""

    def __init__(self, session: Session, broker_id: BrokerId) -> None:
        self._session = session
        self._broker_id = broker_id
        self._remaining = iter(range(0))
        self._lock = asyncio.Lock()

    async def next_producer_id(self) -> int:
        producer_id = next(self._remaining, None)
        if producer_id is not None:
            return producer_id
        async with self._lock:
            while (producer_id := next(self._remaining, None)) is None:
                self._remaining = iter(await self._allocate_block())
            return producer_id

    async def _allocate_block(self) -> range:
        """The write is conditional on the version read: of two brokers at once, one retries."""
        while True:
            current = await self._read()
            first = decode_last_producer_id(current.data) + 1
            last = first + BLOCK_SIZE - 1
            if last > _LAST_POSSIBLE:
                raise ProducerIdsExhausted(f"{PRODUCER_IDS} ends at {first - 1}; no block is left")
            block = encode_producer_block(self._broker_id, first=first, last=last)
            with suppress(BadVersion):
                await self._session.set(PRODUCER_IDS, block, current.stat.version)
                return range(first, last + 1)

    async def _read(self) -> Value:
        while True:
            try:
                return await self._session.get(PRODUCER_IDS)
            except NoNode:
                with suppress(NodeExists):
                    await self._session.create(PRODUCER_IDS)
