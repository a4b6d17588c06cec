"""Sends a coordinator's markers to the leaders of the partitions: here, or on other brokers.

To each broker one request at a time, with all that has gathered. Every marker is sent once, to who
leads at that moment: what is repeated, and when, is the coordinator's to say.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.call import Call
from penstock.client.data_calls import group_numbers
from penstock.coordinators.transaction.dependencies import MarkerCallback, TxnMarkerEntry
from penstock.inter_broker.broker_connections import BrokerCalls
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.request_batcher import RequestBatcher
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode, known_error
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.protocol.api_keys import ApiKey
from penstock.replication.marker_append import MarkerCodes, MarkerWrite
from penstock.replication.metadata_cache import MetadataCache

_VERSIONS = range(1, 3)


class _Part(NamedTuple):
    """Of a marker, what goes to one broker."""

    marker: TxnMarkerEntry
    partitions: tuple[TopicPartition, ...]
    done: MarkerCallback

    def tell(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        self.done(self.marker, {each: codes.get(each, missing) for each in self.partitions})

    def tell_all(self, code: ErrorCode) -> None:
        self.tell(dict.fromkeys(self.partitions, code))


class MarkerSender:
    """Implements `transactions.MarkerChannel`. Owned by the event loop."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        metadata: MetadataCache,
        write_here: Callable[[Sequence[MarkerWrite]], Awaitable[list[MarkerCodes]]],
        brokers: BrokerCalls,
        config: Callable[[], InterBrokerConfig],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._write_here = write_here
        self._brokers = brokers
        self._config = config
        self._run = run
        # A producer's next transaction waits for this one's markers: of each there is one at most,
        # but what a fenced one left may still be on its way.
        self._gathering: RequestBatcher[_Part] = RequestBatcher(
            self._send, key=lambda part: part.marker.producer_id, run=run
        )

    def send(self, markers: Sequence[TxnMarkerEntry], done: MarkerCallback) -> None:
        here: list[_Part] = []
        for marker in markers:
            for place, partitions in self._by_place(marker).items():
                part = _Part(marker, tuple(partitions), done)
                if isinstance(place, ErrorCode):
                    part.tell_all(place)
                elif place == self._own_id:
                    here.append(part)
                elif not self._gathering.try_add(place, part):
                    part.tell_all(ErrorCode.NETWORK_EXCEPTION)
        if here:
            self._run(self._write_own(here))

    def _by_place(self, marker: TxnMarkerEntry) -> dict[BrokerId | ErrorCode, list[TopicPartition]]:
        found: dict[BrokerId | ErrorCode, list[TopicPartition]] = {}
        for each in marker.partitions:
            found.setdefault(self._place_of(each), []).append(each)
        return found

    def _place_of(self, name: TopicPartition) -> BrokerId | ErrorCode:
        """The broker that leads, or why there is none."""
        if not self._metadata.has_partition(name):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = self._metadata.topics[name.topic].partitions[name.partition].leader
        return leader if leader in self._metadata.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    async def _write_own(self, parts: Sequence[_Part]) -> None:
        answers = await self._write_here([_wanted(part) for part in parts])
        for part, codes in zip(parts, answers, strict=True):
            part.tell(codes)

    async def _send(self, broker: BrokerId, parts: Sequence[_Part]) -> None:
        """Returns when all have been told."""
        node = self._metadata.brokers.get(broker)
        try:
            if node is None:
                raise ConnectionError(f"broker {broker} is not there any more")
            # Longer than the leader waits for its replicas.
            timeout_ms = 2 * self._config().request_timeout_ms
            answer = await self._brokers.call(node, _call(parts), timeout_ms=timeout_ms)
        except ConnectionError:
            for part in parts:
                part.tell_all(ErrorCode.NETWORK_EXCEPTION)
            return
        found = _read(answer)
        for part in parts:
            part.tell(found.get(part.marker.producer_id, {}))


def _wanted(part: _Part) -> MarkerWrite:
    marker = part.marker
    return (
        TransactionMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        ),
        part.partitions,
    )


def _call(parts: Sequence[_Part]) -> Call:
    markers = [
        {
            "producer_id": marker.producer_id,
            "producer_epoch": marker.producer_epoch,
            "transaction_result": marker.commit,
            "coordinator_epoch": marker.coordinator_epoch,
            "transaction_version": marker.transaction_version,
            "topics": group_numbers(partitions, "partition_indexes"),
        }
        for marker, partitions, _ in parts
    ]
    return Call(ApiKey.WRITE_TXN_MARKERS, _VERSIONS, {"markers": markers})


def _read(answer: Any) -> dict[int, MarkerCodes]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, each.partition_index): known_error(int(each.error_code))
            for topic in marker.topics
            for each in topic.partitions
        }
        for marker in answer.markers
    }
