"""The measurements: one cell per client, size, acks, codec and number of partitions."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

SIZES_BYTES = (100, 1000, 10_000)
ACKS = ("1", "all")
CODECS = ("none", "lz4")
PARTITIONS = (1, 12, 200)
JAVA = "java"
LIBRDKAFKA = "librdkafka"

_RECORDS = {100: 600_000, 1000: 300_000, 10_000: 40_000}


class Cell(NamedTuple):
    """A producer's workload, followed by reads if `is_read`."""

    client: str
    size_bytes: int
    acks: str
    codec: str
    partitions: int

    @property
    def key(self) -> str:
        return (
            f"{self.client} {self.size_bytes} B acks={self.acks} {self.codec} "
            f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        )

    @property
    def records(self) -> int:
        return _RECORDS[self.size_bytes]

    @property
    def is_read(self) -> bool:
        """Whether reading is measured too: it does not depend on acks, and the Java reader needs a
        group."""
        return self.client == LIBRDKAFKA and self.acks == "1"


class Latency(NamedTuple):
    """End-to-end latency of 1 KB messages at a fixed rate."""

    acks: str
    partitions: int
    rate: int  # messages per second
    seconds: float

    @property
    def key(self) -> str:
        return f"latency acks={self.acks} {self.partitions} partitions {self.rate}/s"


CORE = [
    Cell(LIBRDKAFKA, 1000, "1", "none", 1),
    Cell(LIBRDKAFKA, 1000, "1", "none", 12),
    Cell(LIBRDKAFKA, 1000, "1", "none", 200),
    Cell(LIBRDKAFKA, 1000, "all", "none", 12),
    Cell(LIBRDKAFKA, 1000, "1", "lz4", 12),
    Cell(LIBRDKAFKA, 100, "1", "none", 12),
    Cell(LIBRDKAFKA, 10_000, "1", "none", 12),
    Cell(JAVA, 1000, "1", "none", 12),
    Cell(JAVA, 1000, "all", "none", 12),
    Cell(JAVA, 1000, "all", "lz4", 12),
]
CORE_LATENCIES = [Latency("all", 12, 1000, 8.0)]

FULL = [
    Cell(*values) for values in product((LIBRDKAFKA, JAVA), SIZES_BYTES, ACKS, CODECS, PARTITIONS)
]
FULL_LATENCIES = [
    Latency(acks, partitions, rate, 15.0)
    for acks, partitions, rate in product(ACKS, (1, 12), (1000, 5000))
]
