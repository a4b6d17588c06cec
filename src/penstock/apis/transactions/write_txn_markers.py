"""WriteTxnMarkers (key 27), versions 1-2: ends a transaction in partitions that this broker leads.

Sent by transaction coordinators, and by operators who abort a hanging transaction: a broker, on the
inter-broker listener, may commit or abort; a principal that may alter the cluster may abort.
Version 2 added the transaction version (KIP-1228).
"""

from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.response_shapes import response_shape
from penstock.model.cluster import DEFERRED_TOPIC, OFFSETS_TOPIC
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.protocol.api_keys import ApiKey
from penstock.replication.marker_append import MarkerCodes, MarkerWrite, append_markers
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.WRITE_TXN_MARKERS


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    markers = [_read(entry) for entry in request.message.markers]
    refusal = _find_refusal(request, services, markers)
    if refusal is not ErrorCode.NONE:
        refused: list[MarkerCodes] = [
            dict.fromkeys(partitions, refusal) for _, partitions in markers
        ]
        return _build(request, markers, refused)
    return _write(request, services, markers)


def _read(marker: Any) -> MarkerWrite:
    partitions = [
        TopicPartition(topic.name, index)
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    return (
        TransactionMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=getattr(marker, "transaction_version", 0),
        ),
        list(dict.fromkeys(partitions)),
    )


def _find_refusal(
    request: Request, services: "Services", markers: Sequence[MarkerWrite]
) -> ErrorCode:
    if not _is_broker(request, services):
        may_alter = allows_cluster(request, services, AclOperation.ALTER)
        if not may_alter or any(marker.commit for marker, _ in markers):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    is_sound = all(
        marker.producer_id >= 0 and marker.producer_epoch >= 0 and marker.coordinator_epoch >= -1
        for marker, _ in markers
    )
    return ErrorCode.NONE if is_sound else ErrorCode.INVALID_REQUEST


def _is_broker(request: Request, services: "Services") -> bool:
    try:
        check_broker(request, services)
    except Refusal:
        return False
    return True


async def _write(request: Request, services: "Services", markers: Sequence[MarkerWrite]) -> Any:
    def end_in_group(partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        return services.groups.end_transaction(partition, marker)

    def end_deferred(partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        return services.deferred.end_transaction_here(partition, marker)

    codes = await append_markers(
        markers,
        replicas=services.replicas,
        coordinators={OFFSETS_TOPIC: end_in_group, DEFERRED_TOPIC: end_deferred},
        wall_ms=services.wall_ms,
        timeout_ms=services.config().request_timeout_ms,
    )
    return _build(request, markers, codes)


def _build(request: Request, markers: Sequence[MarkerWrite], results: Sequence[MarkerCodes]) -> Any:
    shape = response_shape(KEY, request.version)
    return shape(
        markers=tuple(
            shape["markers"](producer_id=marker.producer_id, topics=_build_topics(request, codes))
            for (marker, _), codes in zip(markers, results, strict=True)
        )
    )


def _build_topics(request: Request, codes: MarkerCodes) -> tuple[Any, ...]:
    shape = response_shape(KEY, request.version)["markers"]["topics"]
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), code in codes.items():
        entry = shape["partitions"](partition_index=partition, error_code=code)
        by_topic.setdefault(topic, []).append(entry)
    return tuple(
        shape(name=topic, partitions=tuple(entries)) for topic, entries in by_topic.items()
    )


API = Api(
    key=KEY,
    versions=range(1, 3),
    answer=answer,
    elements_share=0.6,  # 1,000 transactions and 10,000 partitions, as brokers send them
)
