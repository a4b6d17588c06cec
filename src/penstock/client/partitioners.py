"""Partitioners that librdkafka lacks. Hashing is librdkafka's own: Java's murmur2."""

import random
from collections.abc import Callable
from typing import Protocol

# (key, value, number of partitions) -> partition
Chooser = Callable[[bytes | None, bytes | None, int], int]
BY_HASH = -1  # librdkafka chooses, by its murmur2


class HasPartition(Protocol):
    """An object of the caller's that chooses partitions, as Kafka's Partitioner does."""

    def partition(self, key: bytes | None, value: bytes | None, partitions: int) -> int: ...


class Partitioner(Protocol):
    def choose(self, key: bytes | None, value: bytes | None, partitions: int) -> int: ...


class RoundRobin:
    """One partition after the other, regardless of the key. Each topic has its own instance."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        chosen = self._next % partitions
        self._next = chosen + 1
        return chosen


class HashOrRoundRobin:
    """By the hash of the key; records without a key go to one partition after the other."""

    def __init__(self) -> None:
        self._round_robin = RoundRobin()

    def choose(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return BY_HASH if key is not None else self._round_robin.choose(key, value, partitions)


class Sticky:
    """One random partition until a batch is full, then another, regardless of the key (KIP-794):
    few large batches instead of many small ones."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._chosen = -1
        self._sent_bytes = 0

    def choose(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        if not 0 <= self._chosen < partitions or self._sent_bytes >= self._batch_bytes:
            self._chosen = _another(self._chosen, partitions)
            self._sent_bytes = 0
        self._sent_bytes += len(key or b"") + len(value or b"")
        return self._chosen


class CustomPartitioner:
    """The caller's function, or the `partition` of the caller's object, with its result checked."""

    def __init__(self, choose: Chooser) -> None:
        self._choose = choose

    def choose(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        chosen = self._choose(key, value, partitions)
        if not isinstance(chosen, int) or not 0 <= chosen < partitions:
            raise ValueError(
                f"the partitioner chose {chosen!r}, the topic has the partitions "
                f"0 to {partitions - 1}"
            )
        return chosen


def _another(current: int, partitions: int) -> int:
    if not 0 <= current < partitions or partitions == 1:
        return random.randrange(partitions)
    chosen = random.randrange(partitions - 1)
    return chosen + (chosen >= current)
