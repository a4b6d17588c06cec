"""Which partition of a coordinator's topic keeps a name: by its hash, as in Java."""

from functools import lru_cache


@lru_cache(maxsize=10_000)  # every request asks, and the hash goes letter by letter
def partition_for(name: str, partitions: int) -> int:
    hashed = java_hash(name)
    # Java's abs of its smallest number is that number; Kafka takes zero for it.
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32 bits with a sign."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(units), 2):
        unit = units[place] << 8 | units[place + 1]
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
