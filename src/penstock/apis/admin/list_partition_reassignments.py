"""ListPartitionReassignments (key 46), version 0: partitions that are being moved (KIP-455)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.interface import ApiError
from penstock.model.cluster import PartitionState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

Moves = Mapping[TopicPartition, PartitionState]


async def answer(request: Request, services: "Services") -> Any:
    if not allows_cluster(request, services, AclOperation.DESCRIBE):
        refused = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs DESCRIBE on the cluster",
        )
        return _response(request, refused, {})
    found = await services.administration.list_reassignments(
        timeout_ms=ms_of_delta(request.message.timeout)
    )
    if isinstance(found, ApiError):
        return _response(request, found, {})
    return _response(request, None, _asked_for(request, found))


API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=range(1),
    answer=answer,
    max_frame_bytes=1 << 20,
)


def _asked_for(request: Request, found: Moves) -> Moves:
    topics = request.message.topics
    if topics is None:
        return found
    named = {
        TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes
    }
    return {name: state for name, state in found.items() if name in named}


def _response(request: Request, refused: ApiError | None, moves: Moves) -> Any:
    shape = response_shape(request.key, request.version)
    inner = shape["topics"]
    by_topic: dict[str, list[Any]] = {}
    for name, state in moves.items():
        entry = _entry(inner["partitions"], name.partition, state)
        by_topic.setdefault(name.topic, []).append(entry)
    return shape(
        throttle_time=timedelta(),
        error_code=(ErrorCode.NONE if refused is None else refused.code),
        error_message=None if refused is None else clip(refused.message),
        topics=tuple(
            inner(name=name, partitions=tuple(entries)) for name, entries in by_topic.items()
        ),
    )


def _entry(shape: Shape, number: int, state: PartitionState) -> Any:
    return shape(
        partition_index=number,
        replicas=state.replicas,
        adding_replicas=state.adding,
        removing_replicas=state.removing,
    )
