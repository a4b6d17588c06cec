"""WriteTxnMarkers (key 27), versions 1-2: a transaction ends in the partitions that this one leads.

Sent by transaction coordinators, and by people who abort a transaction that hangs: brokers on their
own listener may end it either way, whoever may alter the cluster may abort it. Version 2 brings the
transaction's version (KIP-1228).
"""

from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.apis.response_shapes import response_shape
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
    wanted = [_read(each) for each in request.message.markers]
    refusal = _find_refusal(request, services, wanted)
    if refusal is not ErrorCode.NONE:
        refused: list[MarkerCodes] = [
            dict.fromkeys(partitions, refusal) for _, partitions in wanted
        ]
        return _build(request, wanted, refused)
    return _write(request, services, wanted)


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
    request: Request, services: "Services", wanted: Sequence[MarkerWrite]
) -> ErrorCode:
    if not _is_broker(request, services):
        may_alter = allows_cluster(request, services, AclOperation.ALTER)
        if not may_alter or any(marker.commit for marker, _ in wanted):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    is_sound = all(
        marker.producer_id >= 0 and marker.producer_epoch >= 0 and marker.coordinator_epoch >= -1
        for marker, _ in wanted
    )
    return ErrorCode.NONE if is_sound else ErrorCode.INVALID_REQUEST


def _is_broker(request: Request, services: "Services") -> bool:
    try:
        check_broker(request, services)
    except Refusal:
        return False
    return True


async def _write(request: Request, services: "Services", wanted: Sequence[MarkerWrite]) -> Any:
    def end_group_transaction(partition: int, marker: TransactionMarker) -> Awaitable[ErrorCode]:
        return services.groups.end_transaction(partition, marker)

    codes = await append_markers(
        wanted,
        replicas=services.replicas,
        end_group_transaction=end_group_transaction,
        wall_ms=services.wall_ms,
        timeout_ms=services.config().request_timeout_ms,
    )
    return _build(request, wanted, codes)


def _build(request: Request, wanted: Sequence[MarkerWrite], answers: Sequence[MarkerCodes]) -> Any:
    shape = response_shape(KEY, request.version)
    return shape(
        markers=tuple(
            shape["markers"](producer_id=marker.producer_id, topics=_build_topics(request, codes))
            for (marker, _), codes in zip(wanted, answers, strict=True)
        )
    )


def _build_topics(request: Request, codes: MarkerCodes) -> tuple[Any, ...]:
    shape = response_shape(KEY, request.version)["markers"]["topics"]
    by_topic: dict[str, list[Any]] = {}
    for name, code in codes.items():
        entry = shape["partitions"](partition_index=name.partition, error_code=code)
        by_topic.setdefault(name.topic, []).append(entry)
    return tuple(shape(name=name, partitions=tuple(each)) for name, each in by_topic.items())


API = Api(key=KEY, versions=range(1, 3), answer=answer)
