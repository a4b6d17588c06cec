"""Sends a transaction coordinator's markers to the leaders of the partitions, here or elsewhere.

One WriteTxnMarkers request at a time per broker, with all markers that are pending. Every marker is
sent once, to the leader at that moment: the coordinator decides what is retried, and when.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.call import Call
from penstock.client.data_calls import group_numbers
from penstock.coordinators.transaction.dependencies import MarkerCallback, TxnMarkerEntry
from penstock.inter_broker.broker_connections import BrokerCalls
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.request_batcher import PARTITIONS_PER_REQUEST, RequestBatcher
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode, known_error
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.protocol.api_keys import ApiKey
from penstock.replication.marker_append import MarkerCodes, MarkerWrite
from penstock.replication.metadata_cache import MetadataCache

_VERSIONS = range(1, 3)


class _MarkerPart(NamedTuple):
    """The partitions of one marker that one broker leads."""

    marker: TxnMarkerEntry
    partitions: tuple[TopicPartition, ...]
    done: MarkerCallback

    def complete(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        self.done(self.marker, {tp: codes.get(tp, missing) for tp in self.partitions})

    def fail(self, code: ErrorCode) -> None:
        self.complete(dict.fromkeys(self.partitions, code))


class MarkerSender:
    """Implements `MarkerChannel` of the transaction coordinator. Owned by the event loop."""

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
        # A producer's next transaction waits for the markers of this one, so that each producer has
        # one marker at most; but one of a fenced transaction may still be in flight.
        self._batcher: RequestBatcher[_MarkerPart] = RequestBatcher(
            self._send_request,
            key=lambda part: part.marker.producer_id,
            partitions=lambda part: len(part.partitions),
            run=run,
        )

    def send(self, markers: Sequence[TxnMarkerEntry], done: MarkerCallback) -> None:
        here: list[_MarkerPart] = []
        for marker in markers:
            for leader, partitions in self._by_leader(marker):
                part = _MarkerPart(marker, partitions, done)
                if isinstance(leader, ErrorCode):
                    part.fail(leader)
                elif leader == self._own_id:
                    here.append(part)
                elif not self._batcher.try_add(leader, part):
                    part.fail(ErrorCode.NETWORK_EXCEPTION)
        if here:
            self._run(self._write_own(here))

    def _by_leader(
        self, marker: TxnMarkerEntry
    ) -> Iterator[tuple[BrokerId | ErrorCode, tuple[TopicPartition, ...]]]:
        """At most as many partitions of a leader at a time as one request may name."""
        partitions: dict[BrokerId | ErrorCode, list[TopicPartition]] = {}
        for tp in marker.partitions:
            partitions.setdefault(self._leader_of(tp), []).append(tp)
        for leader, tps in partitions.items():
            for start in range(0, len(tps), PARTITIONS_PER_REQUEST):
                yield leader, tuple(tps[start : start + PARTITIONS_PER_REQUEST])

    def _leader_of(self, tp: TopicPartition) -> BrokerId | ErrorCode:
        """The leader, or why there is none."""
        if not self._metadata.has_partition(tp):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = self._metadata.topics[tp.topic].partitions[tp.partition].leader
        return leader if leader in self._metadata.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    async def _write_own(self, parts: Sequence[_MarkerPart]) -> None:
        results = await self._write_here([_marker_write(part) for part in parts])
        for part, codes in zip(parts, results, strict=True):
            part.complete(codes)

    async def _send_request(self, broker: BrokerId, parts: Sequence[_MarkerPart]) -> None:
        """Returns when every part is complete."""
        node = self._metadata.brokers.get(broker)
        try:
            if node is None:
                raise ConnectionError(f"broker {broker} is not registered any more")
            # Longer than the leader waits for its followers.
            timeout_ms = 2 * self._config().request_timeout_ms
            response = await self._brokers.call(node, _request(parts), timeout_ms=timeout_ms)
        except ConnectionError:
            for part in parts:
                part.fail(ErrorCode.NETWORK_EXCEPTION)
            return
        codes_by_producer = _read(response)
        for part in parts:
            part.complete(codes_by_producer.get(part.marker.producer_id, {}))


def _marker_write(part: _MarkerPart) -> MarkerWrite:
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


def _request(parts: Sequence[_MarkerPart]) -> Call:
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


def _read(response: Any) -> dict[int, MarkerCodes]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, partition.partition_index): known_error(
                int(partition.error_code)
            )
            for topic in marker.topics
            for partition in topic.partitions
        }
        for marker in response.markers
    }
