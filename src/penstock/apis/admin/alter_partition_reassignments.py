"""AlterPartitionReassignments (key 45), versions 0-1: starts or cancels reassignments.

It responds when a reassignment has started; ListPartitionReassignments shows those in progress
(KIP-455). Version 1 may forbid a change of the replication factor.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.interface import ApiError, Reassignment
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services


async def answer(request: Request, services: "Services") -> Any:
    reassignments = list(_reassignments(request))
    if not allows_cluster(request, services, AclOperation.ALTER):
        refused = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs ALTER on the cluster",
        )
        return _response(request, refused, [])
    answers = await _alter(request, services, reassignments)
    first = answers[0] if answers else None
    if first is not None and first.code is ErrorCode.NOT_CONTROLLER:
        return _response(request, first, [])
    return _response(request, None, answers)


API = Api(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=range(2),
    answer=answer,
)


async def _alter(
    request: Request, services: "Services", reassignments: list[Reassignment]
) -> list[ApiError | None]:
    counts = Counter(reassignment.tp for reassignment in reassignments)
    once = [reassignment for reassignment in reassignments if counts[reassignment.tp] == 1]
    allows = getattr(request.message, "allow_replication_factor_change", True)
    done = await services.administration.alter_reassignments(
        once,
        allow_replication_factor_change=allows,
        timeout_ms=ms_of_delta(request.message.timeout),
    )
    left = iter(done)
    return [
        next(left) if counts[reassignment.tp] == 1 else _twice(reassignment.tp)
        for reassignment in reassignments
    ]


def _twice(tp: TopicPartition) -> ApiError:
    message = f"partition {tp.partition} is named more than once in the request; name it once"
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _reassignments(request: Request) -> Iterator[Reassignment]:
    for topic in request.message.topics:
        for partition in topic.partitions:
            replicas = partition.replicas
            target = None if replicas is None else tuple(map(BrokerId, replicas))
            yield Reassignment(TopicPartition(topic.name, partition.partition_index), target)


def _response(request: Request, whole: ApiError | None, answers: list[ApiError | None]) -> Any:
    shape = response_shape(request.key, request.version)
    inner = shape["responses"]
    left = iter(answers)
    return shape(
        throttle_time=timedelta(),
        allow_replication_factor_change=getattr(
            request.message, "allow_replication_factor_change", True
        ),
        error_code=(ErrorCode.NONE if whole is None else whole.code),
        error_message=None if whole is None else clip(whole.message),
        responses=tuple(
            inner(
                name=topic.name,
                partitions=tuple(
                    _result(inner["partitions"], partition.partition_index, next(left))
                    for partition in topic.partitions
                ),
            )
            for topic in request.message.topics
        )
        if whole is None
        else (),
    )


def _result(shape: Shape, number: int, refused: ApiError | None) -> Any:
    return shape(
        partition_index=number,
        error_code=(ErrorCode.NONE if refused is None else refused.code),
        error_message=None if refused is None else clip(refused.message),
    )
