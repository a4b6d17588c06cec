"""Finds the damaged batch at which librdkafka stays for ever without a word.

librdkafka takes records that do not decode for a batch that is cut off, and fetches it again and
again. So a consumer that gets nothing, though the partition has more, reads the batches there by
itself. Invariant: only a batch that was read and does not decode is an error, never a slow broker.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.errors import ClientError, ConsumeFailed
from penstock.client.rdkafka import LOG
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import CONTROL, CorruptBatch, iter_headers
from penstock.protocol.records import iter_records

_IDLE_S = 0.5  # without a message, before the first look
_LONGEST_PAUSE_S = 30.0
_TIMEOUT_MS = 5_000
_PARTITIONS = 100  # looked at in one go

StartOf = Callable[[TopicPartition], int]


class DamagedBatches:
    """Used by the reading thread alone, under the consumer's lock."""

    def __init__(self, consumer: Consumer, bootstrap_servers: str, start_of: StartOf) -> None:
        self._consumer = consumer
        self._bootstrap_servers = bootstrap_servers
        self._start_of = start_of  # where reading began, if nothing was read yet; negative: unknown
        self._sound_until: dict[TopicPartition, int] = {}  # no damage below these offsets
        self.note_progress()

    def note_progress(self) -> None:
        self._pause_s = _IDLE_S
        self._next_look_s = time.monotonic() + _IDLE_S

    def look_if_due(self) -> None:
        if time.monotonic() >= self._next_look_s:
            self.look()
            self._next_look_s = time.monotonic() + self._pause_s

    def look(self) -> None:
        """ConsumeFailed if a partition does not advance because of a batch that does not decode."""
        behind = self._find_behind()
        if not behind:
            return
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        try:
            with ThreadPoolExecutor(max_workers=1) as thread:  # the caller's may run a loop
                damage = thread.submit(lambda: asyncio.run(self._find_damage(behind))).result()
        except (ClientError, OSError) as error:
            LOG.warning("cannot look for damaged batches at %s: %s", behind, error)
            return
        if damage is not None:
            raise ConsumeFailed(damage)

    def _find_behind(self) -> list[tuple[TopicPartition, int]]:
        """Partitions with more to read, and the offset that comes next there."""
        behind = []
        try:
            for position in self._consumer.position(self._consumer.assignment())[:_PARTITIONS]:
                tp = TopicPartition(position.topic, position.partition)
                offset = position.offset if position.offset >= 0 else self._start_of(tp)
                _, end = self._consumer.get_watermark_offsets(Place(*tp), cached=True)
                if 0 <= max(offset, self._sound_until.get(tp, 0)) < end and offset >= 0:
                    behind.append((tp, offset))
        except KafkaException as error:
            LOG.warning("cannot tell which partitions are behind: %s", error)
        return behind

    async def _find_damage(self, behind: Sequence[tuple[TopicPartition, int]]) -> str | None:
        # Imported when needed: librdkafka reads, and this only looks where it is stuck.
        from penstock.client.cluster import ClusterClient
        from penstock.client.data_calls import FetchFrom

        async with ClusterClient(self._bootstrap_servers) as client:
            for tp, offset in behind:
                [fetched] = await client.fetch(
                    [FetchFrom(tp, Offset(offset))], max_wait_ms=0, timeout_ms=_TIMEOUT_MS
                )
                damage = self._check(tp, fetched.batches)
                if damage is not None:
                    return damage
        return None

    def _check(self, tp: TopicPartition, batches: memoryview) -> str | None:
        try:
            for position, header in iter_headers(batches):
                if not header.attributes & CONTROL:
                    _read_all(batches[position : position + header.size], header.base_offset)
                self._sound_until[tp] = header.next_offset
        except _Undecodable as damage:
            return describe_damage(tp, damage.offset, damage.reason)
        except CorruptBatch as error:
            return describe_damage(tp, self._sound_until.get(tp, -1), error.reason)
        return None


def describe_damage(tp: TopicPartition, offset: int, reason: str) -> str:
    return (
        f"{tp}: the batch at offset {offset} is damaged and cannot be read: {reason}; continue "
        f"after it with seek, or delete the records up to it"
    )


class _Undecodable(Exception):
    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def _read_all(batch: memoryview, base_offset: int) -> None:
    try:
        for _ in iter_records(batch):
            pass
    except CorruptBatch as error:
        raise _Undecodable(base_offset, error.reason) from error
