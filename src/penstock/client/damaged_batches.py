"""Finds the damaged batch at which librdkafka stays for ever without a word.

librdkafka takes records that do not decode for a batch that is cut off, and fetches it again and
again. So for a consumer that gets nothing, though the partition has more, the batches there are
read in a thread of their own, and a later poll takes the result: no poll waits for a broker here.
Nothing is looked for if the consumer's settings ask for a login that the raw client does not have,
such as Kerberos. Invariant: only a batch that was read and does not decode is an error, never a
slow broker.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.errors import ClientError, ConsumeFailed, InvalidClientConfig
from penstock.client.rdkafka import LOG
from penstock.client.security.config import ClientSecurity
from penstock.client.security.properties import parse_client_security
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import CONTROL, CorruptBatch, iter_headers
from penstock.protocol.records import iter_records

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient

_IDLE_S = 0.5  # without a message, before the first look
_LONGEST_PAUSE_S = 30.0
_TIMEOUT_S = 30  # of a look; only `look` waits for it, and not longer than its caller wants
_PARTITIONS = 100  # looked at in one go

StartOf = Callable[[TopicPartition], int]


class _Stuck(NamedTuple):
    """A partition with more to read."""

    tp: TopicPartition
    position: int  # of the consumer; negative: nothing was read yet
    start: int  # where reading begins without a position and a committed offset; negative: unknown


class _LookResult(NamedTuple):
    sound_until: dict[TopicPartition, int]  # the offsets after the batches that were read
    stuck: _Stuck | None = None  # at the damage
    damage: str | None = None


class DamagedBatches:
    """Used by the reading thread alone, under the consumer's lock."""

    def __init__(
        self, consumer: Consumer, settings: Mapping[str, Any], start_of: StartOf, *, has_group: bool
    ) -> None:
        """`settings`: the consumer's own, under librdkafka's names."""
        self._consumer = consumer
        self._bootstrap_servers = str(settings["bootstrap.servers"])
        self._client_id = str(settings["client.id"])
        self._security = _find_security(settings)
        self._group = str(settings["group.id"]) if has_group else None
        self._isolation = str(settings["isolation.level"])
        self._start_of = start_of
        self._sound_until: dict[TopicPartition, int] = {}  # no damage below these offsets
        self._looking: Future[_LookResult] | None = None
        self.note_progress()

    def note_progress(self) -> None:
        self._pause_s = _IDLE_S
        self._next_look_s = time.monotonic() + _IDLE_S

    def look_if_due(self) -> None:
        """Take the result of an earlier look, or begin one; never waits. ConsumeFailed if a
        partition does not advance because of a batch that does not decode."""
        self._take_result()
        if self._looking is None and time.monotonic() >= self._next_look_s:
            self._begin()

    def look(self, timeout_s: float) -> None:
        """The same at once, waiting for the result."""
        if self._looking is None:
            self._begin()
        if self._looking is not None:
            wait([self._looking], timeout_s)
            self._take_result()

    def _begin(self) -> None:
        self._next_look_s = time.monotonic() + self._pause_s
        if self._security is None or not (stuck := self._find_stuck()):
            return
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._looking = Future()
        # A daemon, because the program may end meanwhile.
        Thread(
            target=self._run,
            args=(self._looking, stuck, self._security),
            name="damaged-batches",
            daemon=True,
        ).start()

    def _take_result(self) -> None:
        if self._looking is None or not self._looking.done():
            return
        looking, self._looking = self._looking, None
        try:
            result = looking.result()
        except (ClientError, OSError) as error:
            LOG.warning("cannot look for damaged batches: %s", error)
            return
        self._sound_until |= result.sound_until
        # The program may have continued elsewhere since.
        if result.damage is not None and result.stuck in self._find_stuck():
            self._next_look_s = 0.0
            raise ConsumeFailed(result.damage)

    def _find_stuck(self) -> list[_Stuck]:
        stuck = []
        try:
            for assigned in self._consumer.position(self._consumer.assignment())[:_PARTITIONS]:
                tp = TopicPartition(assigned.topic, assigned.partition)
                position = max(assigned.offset, -1)
                start = self._start_of(tp) if position < 0 else position
                _, end = self._consumer.get_watermark_offsets(Place(*tp), cached=True)
                may_start = start >= 0 or self._group is not None
                if may_start and max(start, 0, self._sound_until.get(tp, 0)) < end:
                    stuck.append(_Stuck(tp, position, start))
        except KafkaException as error:
            LOG.warning("cannot tell which partitions are behind: %s", error)
        return stuck

    # -- in the thread of its own ----------------------------------------------------------

    def _run(
        self,
        looking: "Future[_LookResult]",
        stuck: Sequence[_Stuck],
        security: ClientSecurity,
    ) -> None:
        try:
            looking.set_result(asyncio.run(self._find_damage(stuck, security)))
        except BaseException as error:  # raised where the result is taken
            looking.set_exception(error)

    async def _find_damage(self, stuck: Sequence[_Stuck], security: ClientSecurity) -> _LookResult:
        # Imported when needed: librdkafka reads, and this only looks where it is stuck.
        from penstock.client.cluster import ClusterClient
        from penstock.client.data_calls import FetchFrom, IsolationLevel

        isolation = IsolationLevel[self._isolation.upper()]
        result = _LookResult({})
        async with (
            asyncio.timeout(_TIMEOUT_S),
            ClusterClient(
                self._bootstrap_servers, client_id=self._client_id, security=security
            ) as client,
        ):
            for item, start in await self._find_starts(client, stuck):
                fetch_from = FetchFrom(item.tp, Offset(start))
                [fetched] = await client.fetch([fetch_from], isolation=isolation, max_wait_ms=0)
                sound_until, damage = _check(item.tp, start, fetched.batches)
                result.sound_until[item.tp] = sound_until
                if damage is not None:
                    return result._replace(stuck=item, damage=damage)
        return result

    async def _find_starts(
        self, client: "ClusterClient", stuck: Sequence[_Stuck]
    ) -> list[tuple[_Stuck, int]]:
        """Each with the offset at which it reads, without those that have none."""
        starts = {item: item.start for item in stuck}
        unread = {item.tp: item for item in stuck if item.position < 0}
        if self._group is not None and unread:
            committed = await client.groups.fetch_offsets(self._group, unread)
            starts |= {unread[tp]: offset.offset for tp, offset in committed.items()}
        return [(item, start) for item, start in starts.items() if start >= 0]


def _find_security(settings: Mapping[str, Any]) -> ClientSecurity | None:
    """None if only librdkafka can do what they ask for."""
    try:
        return parse_client_security(settings)
    except InvalidClientConfig as error:
        LOG.info("damaged batches are not looked for: %s", error)
        return None


def _check(tp: TopicPartition, start: int, batches: memoryview) -> tuple[int, str | None]:
    """The offset after the sound batches, and the damage that follows them, if any."""
    sound_until = offset = start
    try:
        for position, header in iter_headers(batches):
            offset = header.base_offset
            if not header.attributes & CONTROL:
                for _ in iter_records(batches[position : position + header.size]):
                    pass
            sound_until = offset = header.next_offset
    except CorruptBatch as error:
        return sound_until, describe_damage(tp, offset, error.reason)
    return sound_until, None


def describe_damage(tp: TopicPartition, offset: int, reason: str) -> str:
    return (
        f"{tp}: the batch at offset {offset} is damaged and cannot be read: {reason}; continue "
        f"after it with seek, or delete the records up to it"
    )
