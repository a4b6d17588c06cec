"""Nodes that have to be there before others: made where they are missing, all of them at once."""

import asyncio
from collections.abc import Sequence

from penstock.metadata_store.errors import NodeExists
from penstock.metadata_store.interface import Session


async def ensure_znodes(session: Session, paths: Sequence[str], last_data: bytes = b"") -> None:
    """Parents first. A session answers in order, so that nothing is awaited one by one: in a tree
    with a journal it is one round, not one for each. `last_data` is for the last of the paths."""
    found = await asyncio.gather(*(session.exists(path) for path in paths))
    missing = [path for path, stat in zip(paths, found, strict=True) if stat is None]
    data = {paths[-1]: last_data}
    made = await asyncio.gather(
        *(session.create(path, data.get(path, b"")) for path in missing), return_exceptions=True
    )
    for answer in made:
        if isinstance(answer, BaseException) and not isinstance(answer, NodeExists):
            raise answer  # NodeExists: another broker does the same
