"""CreatePartitions (key 37), versions 0-3: one result per topic, in the order of the request.

The versions differ only in their encoding. A topic that occurs twice is refused.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import Shape, response_shape
from penstock.apis.throttling import refuse_mutations
from penstock.controller.interface import ApiError, NewPartitions
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

_FIRST_WITH_QUOTA = 3  # whose clients know THROTTLING_QUOTA_EXCEEDED


async def answer(request: Request, services: "Services") -> Any:
    topics = {topic.name: topic for topic in request.message.topics}
    refusals = _find_refusals(request, services)
    wanted = [_new_partitions(topic) for name, topic in topics.items() if name not in refusals]
    if services.quotas.is_active and not request.message.validate_only:
        exceeded = _find_exceeded(request, services, wanted)
        refusals |= exceeded
        wanted = [topic for topic in wanted if topic.name not in exceeded]
    answers = await _create(request, services, wanted)
    results: dict[str, ApiError | None] = dict.fromkeys(topics)
    results.update(refusals)
    results.update(zip((topic.name for topic in wanted), answers, strict=True))
    shape = response_shape(request.key, request.version)
    return shape(
        throttle_time=timedelta(),
        results=tuple(
            _result(shape["results"], name, refused) for name, refused in results.items()
        ),
    )


API = Api(key=ApiKey.CREATE_PARTITIONS, versions=range(4), answer=answer)


async def _create(
    request: Request, services: "Services", wanted: Sequence[NewPartitions]
) -> Sequence[ApiError | None]:
    if not wanted:
        return ()
    return await services.administration.create_partitions(
        wanted,
        validate_only=request.message.validate_only,
        timeout_ms=ms_of_delta(request.message.timeout),
    )


def _find_exceeded(
    request: Request, services: "Services", wanted: Sequence[NewPartitions]
) -> dict[str, ApiError]:
    """Above the quota of the client, which counts the partitions that are added."""
    topics = ((new, services.metadata.find_topic(new.name)) for new in wanted)
    partitions = {
        new.name: max(new.total - len(topic.partitions), 0)
        for new, topic in topics
        if topic is not None
    }
    return refuse_mutations(request, partitions, first_refusing=_FIRST_WITH_QUOTA)


def _find_refusals(request: Request, services: "Services") -> dict[str, ApiError]:
    counts = Counter(topic.name for topic in request.message.topics)
    refusals: dict[str, ApiError] = {}
    for topic in request.message.topics:
        name = topic.name
        if not allows_topic(request, services, AclOperation.ALTER, name):
            refusals[name] = ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{request.caller.principal} may not add partitions to topic {name!r}; "
                "it needs ALTER on the topic",
            )
        elif counts[name] > 1:
            refusals[name] = ApiError(
                ErrorCode.INVALID_REQUEST,
                f"topic {name!r} is named {counts[name]} times in the request; name it once",
            )
    return refusals


def _new_partitions(topic: Any) -> NewPartitions:
    if topic.assignments is None:
        return NewPartitions(name=topic.name, total=topic.count)
    assignment = tuple(
        tuple(BrokerId(broker) for broker in assignment.broker_ids)
        for assignment in topic.assignments
    )
    return NewPartitions(name=topic.name, total=topic.count, assignment=assignment)


def _result(shape: Shape, name: str, refused: ApiError | None) -> Any:
    code = ErrorCode.NONE if refused is None else refused.code
    return shape(
        name=name,
        error_code=code,
        error_message=None if refused is None else clip(refused.message),
    )
