"""ListPartitionReassignments (key 46), version 0: reassignments in progress (KIP-455).

The request's timeout is not used: the controller answers from memory.
"""

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
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

Reassignments = Mapping[TopicPartition, PartitionState]


async def answer(request: Request, services: "Services") -> Any:
    if not allows_cluster(request, services, AclOperation.DESCRIBE):
        refused = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs DESCRIBE on the cluster",
        )
        return _response(request, refused, {})
    reassignments = await services.administration.list_reassignments()
    if isinstance(reassignments, ApiError):
        return _response(request, reassignments, {})
    return _response(request, None, _requested(request, reassignments))


API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=range(1),
    answer=answer,
)


def _requested(request: Request, reassignments: Reassignments) -> Reassignments:
    topics = request.message.topics
    if topics is None:
        return reassignments
    named = {
        TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes
    }
    return {tp: state for tp, state in reassignments.items() if tp in named}


def _response(request: Request, refused: ApiError | None, reassignments: Reassignments) -> Any:
    shape = response_shape(request.key, request.version)
    inner = shape["topics"]
    by_topic: dict[str, list[Any]] = {}
    for tp, state in reassignments.items():
        entry = _entry(inner["partitions"], tp.partition, state)
        by_topic.setdefault(tp.topic, []).append(entry)
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
