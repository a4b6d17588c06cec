"""DeleteTopics (key 20), versions 1-6: one result per topic, in the order of the request.

Version 5 added messages, 6 topics by name or by id. An id is resolved before authorization; without
DESCRIBE the caller does not learn the name behind the id (KIP-516).
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from penstock.apis.access import allows_cluster, allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.apis.throttling import refuse_mutations
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

_FIRST_WITH_QUOTA = 5  # whose clients know THROTTLING_QUOTA_EXCEEDED
_FIRST_WITH_IDS = 6
_FIRST_WITH_DISABLED = 3  # TOPIC_DELETION_DISABLED, which older clients do not know


class DeletionTarget(NamedTuple):
    """A topic as the request names it, by name or by id."""

    name: str | None
    topic_id: UUID | None


class DeletionResult(NamedTuple):
    """The result for a topic; `refused` is None if it is to be deleted, or was."""

    name: str | None
    topic_id: UUID | None
    refused: ApiError | None


async def answer(request: Request, services: "Services") -> Any:
    results = _check_all(request, services)
    if services.quotas.is_active:
        results = _refuse_exceeded(request, services, results)
    names = [
        result.name for result in results if result.refused is None and result.name is not None
    ]
    answers = iter(await _delete(request, services, names))
    shape = response_shape(request.key, request.version)
    return shape(
        throttle_time=timedelta(),
        responses=tuple(
            _result(shape["responses"], result, result.refused or next(answers))
            for result in results
        ),
    )


API = Api(key=ApiKey.DELETE_TOPICS, versions=range(1, 7), answer=answer)


async def _delete(
    request: Request, services: "Services", names: Sequence[str]
) -> Sequence[ApiError | None]:
    if not names:
        return ()
    return await services.administration.delete_topics(
        names, timeout_ms=ms_of_delta(request.message.timeout)
    )


def _refuse_exceeded(
    request: Request, services: "Services", results: Sequence[DeletionResult]
) -> list[DeletionResult]:
    """Above the quota of the client, which counts the partitions that are deleted."""
    partitions = {
        result.name: len(topic.partitions)
        for result in results
        if result.refused is None
        and result.name is not None
        and (topic := services.metadata.find_topic(result.name)) is not None
    }
    exceeded = refuse_mutations(request, partitions, first_refusing=_FIRST_WITH_QUOTA)
    return [
        result._replace(refused=exceeded[result.name])
        if result.refused is None and result.name in exceeded
        else result
        for result in results
    ]


def _targets(request: Request) -> Iterable[DeletionTarget]:
    if request.version < _FIRST_WITH_IDS:
        return (DeletionTarget(name, None) for name in request.message.topic_names)
    return (DeletionTarget(topic.name, topic.topic_id) for topic in request.message.topics)


def _check_all(request: Request, services: "Services") -> list[DeletionResult]:
    """One result per topic, however often and in whichever way it is named."""
    results: dict[DeletionTarget, DeletionResult] = {}
    first_by_name: dict[str, DeletionTarget] = {}
    for target in _targets(request):
        if target in results:
            results[target] = _twice(results[target])
            continue
        result = _check(target, request, services)
        results[target] = result
        if result.refused is None and result.name is not None:
            first = first_by_name.setdefault(result.name, target)
            if first != target:  # once by name and once by id
                results[first] = _twice(results[first])
                results[target] = _twice(result)
    return list(results.values())


def _twice(result: DeletionResult) -> DeletionResult:
    """Nothing is deleted; earlier refusals stay, so that they do not reveal what exists."""
    if result.refused is not None:
        return result
    message = f"topic {result.name!r} is named more than once in the request; name it once"
    return result._replace(refused=ApiError(ErrorCode.INVALID_REQUEST, message))


def _check(target: DeletionTarget, request: Request, services: "Services") -> DeletionResult:
    if target.topic_id is not None:
        return _check_id(target, target.topic_id, request, services)
    if target.name is None:
        message = "an entry has neither a topic's name nor its id; give one of them"
        return DeletionResult(None, None, ApiError(ErrorCode.INVALID_REQUEST, message))
    refused = _find_refusal(target.name, request, services)
    topic = services.metadata.find_topic(target.name) if refused is None else None
    return DeletionResult(target.name, None if topic is None else topic.topic_id, refused)


def _check_id(
    target: DeletionTarget, topic_id: UUID, request: Request, services: "Services"
) -> DeletionResult:
    if target.name is not None:
        message = "an entry has a topic's name and its id as well; give one of them"
        return DeletionResult(*target, ApiError(ErrorCode.INVALID_REQUEST, message))
    name = services.metadata.find_name(TopicId(topic_id))
    if name is None:
        message = f"there is no topic of id {topic_id}; it was deleted, or never existed"
        return DeletionResult(None, topic_id, ApiError(ErrorCode.UNKNOWN_TOPIC_ID, message))
    if not _may_delete_all(request, services) and not allows_topic(
        request, services, AclOperation.DESCRIBE, name
    ):
        message = f"{request.caller.principal} may not delete the topic of id {topic_id}"
        return DeletionResult(
            None, topic_id, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        )
    return DeletionResult(name, topic_id, _find_refusal(name, request, services))


def _find_refusal(name: str, request: Request, services: "Services") -> ApiError | None:
    if not _may_delete_all(request, services) and not allows_topic(
        request, services, AclOperation.DELETE, name
    ):
        return ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{request.caller.principal} may not delete topic {name!r}; "
            "it needs DELETE on the topic or on the cluster",
        )
    if not services.config().deletes_topics:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        return ApiError(
            code if request.version >= _FIRST_WITH_DISABLED else ErrorCode.INVALID_REQUEST,
            code.message,
        )
    return None


def _may_delete_all(request: Request, services: "Services") -> bool:
    return allows_cluster(request, services, AclOperation.DELETE, shows=True)


def _result(shape: Shape, result: DeletionResult, refused: ApiError | None) -> Any:
    code = ErrorCode.NONE if refused is None else refused.code
    return shape(
        name=result.name,
        topic_id=result.topic_id,
        error_code=code,
        error_message=None if refused is None else clip(refused.message),
    )
