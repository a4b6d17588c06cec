"""Message payloads: text that compresses to about a third, the same in every run."""

from __future__ import annotations

import random
from pathlib import Path

COUNT = 100
_WORDS = [
    "order", "customer", "amount", "currency", "created", "shipped", "warehouse", "item",
    "quantity", "address", "status", "pending", "complete", "express", "discount", "total",
]  # fmt: skip


def make_payloads(size_bytes: int) -> list[bytes]:
    source = random.Random(size_bytes)
    return [_make_payload(source, size_bytes) for _ in range(COUNT)]


def write_payload_file(path: Path, size_bytes: int) -> Path:
    """Writes one payload per line, as Kafka's own tool expects."""
    path.write_bytes(b"\n".join(make_payloads(size_bytes)))
    return path


def _make_payload(source: random.Random, size_bytes: int) -> bytes:
    parts: list[str] = []
    length = 0
    while length < size_bytes:
        parts.append(f"{source.choice(_WORDS)}={source.randrange(100_000)};")
        length += len(parts[-1])
    return "".join(parts).encode()[:size_bytes]
