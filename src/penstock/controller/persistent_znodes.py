"""Creates the persistent znodes that others are created below."""

import asyncio
from collections.abc import Sequence

from penstock.metadata_store.errors import NodeExists
from penstock.metadata_store.interface import Session


async def ensure_znodes(session: Session, paths: Sequence[str], last_data: bytes = b"") -> None:
    """Create those of `paths` (parents first) that are missing; `last_data` is for the last one.

    All requests are sent at once, because a session answers in order: with the embedded store's
    journal that is one write, not one per znode.
    """
    stats = await asyncio.gather(*(session.exists(path) for path in paths))
    missing = [path for path, stat in zip(paths, stats, strict=True) if stat is None]
    data = {paths[-1]: last_data}
    results = await asyncio.gather(
        *(session.create(path, data.get(path, b"")) for path in missing), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, NodeExists):
            raise result  # NodeExists: another broker created it meanwhile
