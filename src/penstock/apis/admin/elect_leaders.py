"""ElectLeaders (key 43), versions 0-2: a preferred or an unclean leader election on demand.

Version 0 elects preferred leaders only and has no error for the whole request. The response to a
request for all partitions has only those that needed an election.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.interface import ApiError
from penstock.model.admin import ElectionType
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

Results = Mapping[TopicPartition, ApiError | None]


async def answer(request: Request, services: "Services") -> Any:
    named = _named(request)
    elected = await _elect(request, services, named)
    if isinstance(elected, ApiError):
        refused = elected
        return _response(request, refused.code, dict.fromkeys(named or (), refused))
    return _response(request, ErrorCode.NONE, elected)


API = Api(key=ApiKey.ELECT_LEADERS, versions=range(3), answer=answer)


async def _elect(
    request: Request, services: "Services", named: list[TopicPartition] | None
) -> Results | ApiError:
    if not allows_cluster(request, services, AclOperation.ALTER):
        return ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs ALTER on the cluster",
        )
    kind = getattr(request.message, "election_type", ElectionType.PREFERRED.value)
    if kind not in [election.value for election in ElectionType]:
        return ApiError(ErrorCode.INVALID_REQUEST, f"there is no election of type {kind}")
    return await services.administration.elect_leaders(
        ElectionType(kind), named, timeout_ms=ms_of_delta(request.message.timeout)
    )


def _named(request: Request) -> list[TopicPartition] | None:
    topics = request.message.topic_partitions
    if topics is None:
        return None
    tps = (
        TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions
    )
    return list(dict.fromkeys(tps))


def _response(request: Request, code: ErrorCode, results: Results) -> Any:
    shape = response_shape(request.key, request.version)
    by_topic: dict[str, list[Any]] = {}
    inner = shape["replica_election_results"]
    for tp, refused in results.items():
        result = _result(inner["partition_result"], tp.partition, refused)
        by_topic.setdefault(tp.topic, []).append(result)
    return shape(
        throttle_time=timedelta(),
        error_code=code,
        replica_election_results=_by_name(inner, by_topic.items()),
    )


def _by_name(shape: Shape, items: Iterable[tuple[str, list[Any]]]) -> tuple[Any, ...]:
    return tuple(shape(topic=topic, partition_result=tuple(results)) for topic, results in items)


def _result(shape: Shape, number: int, refused: ApiError | None) -> Any:
    return shape(
        partition_id=number,
        error_code=(ErrorCode.NONE if refused is None else refused.code),
        error_message=None if refused is None else clip(refused.message),
    )
