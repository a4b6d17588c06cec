"""Packs write steps into as few `multi` transactions as possible, in order. Pure.

A step is never split: all of its operations are in one transaction.
"""

from collections.abc import Iterable, Iterator

from penstock.controller.state import WriteStep
from penstock.metadata_store.interface import (
    OPERATION_OVERHEAD_BYTES,
    Create,
    Operation,
    SetData,
)

# Far below ZooKeeper's limit, because the embedded store applies a transaction on the event loop.
TRANSACTION_BYTES = 128 * 1024


def batch_writes(
    steps: Iterable[WriteStep], limit_bytes: int = TRANSACTION_BYTES
) -> Iterator[list[Operation]]:
    """A step larger than the limit gets its own transaction."""
    batch: list[Operation] = []
    length = 0
    for step in steps:
        added = sum(map(request_bytes, step))
        if batch and length + added > limit_bytes:
            yield batch
            batch, length = [], 0
        batch += step
        length += added
    if batch:
        yield batch


def request_bytes(operation: Operation) -> int:
    """An operation's size as counted by the store's request limit; all paths are ASCII."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return OPERATION_OVERHEAD_BYTES + len(operation.path) + len(data)
