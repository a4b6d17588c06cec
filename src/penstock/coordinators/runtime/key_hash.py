"""Maps a group id or transactional id to a partition of the coordinator's topic, by Java's hash."""

from functools import lru_cache


@lru_cache(maxsize=10_000)  # needed by every request, and the hash goes character by character
def partition_for(name: str, partitions: int) -> int:
    hashed = java_hash(name)
    # Java's abs(Integer.MIN_VALUE) is negative; Kafka takes 0 for it.
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, in signed 32 bits."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        unit = units[index] << 8 | units[index + 1]
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
