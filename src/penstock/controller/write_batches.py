"""Steps packed into as few transactions as the tree takes, in their order. Pure.

A step is never cut: all of its operations are in one transaction.
"""

from collections.abc import Iterable, Iterator

from penstock.controller.state import WriteStep
from penstock.metadata_store.interface import (
    OPERATION_OVERHEAD_BYTES,
    Create,
    Operation,
    SetData,
)

# Far below what the tree takes: the embedded one applies a transaction in one go, on the loop.
TRANSACTION_BYTES = 128 * 1024


def batch_writes(
    steps: Iterable[WriteStep], limit_bytes: int = TRANSACTION_BYTES
) -> Iterator[list[Operation]]:
    """A larger step than the limit has a transaction of its own."""
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
    """What an operation counts in the limit of the tree's requests; paths here are ASCII."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return OPERATION_OVERHEAD_BYTES + len(operation.path) + len(data)
