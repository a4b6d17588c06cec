"""DeleteRecords (key 21), versions 0-2: moves the log start offset of partitions led by this
broker.

One result per partition with its new low watermark; offset -1 means the high watermark. Topics that
are only compacted refuse it.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

_NO_OFFSET = Offset(-1)


class _Result(NamedTuple):
    code: ErrorCode
    low_watermark: Offset


def answer(request: Request, services: "Services") -> Any:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.message.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((entry.partition_index, entry.offset) for entry in topic.partitions)
    shape = response_shape(request.key, request.version)
    return shape(
        throttle_time=timedelta(),
        topics=tuple(
            _topic_result(shape["topics"], name, offsets, request, services)
            for name, offsets in wanted.items()
        ),
    )


API = Api(key=ApiKey.DELETE_RECORDS, versions=range(3), answer=answer)


def _topic_result(
    shape: Shape, topic: str, offsets: dict[int, int], request: Request, services: "Services"
) -> Any:
    if allows_topic(request, services, AclOperation.DELETE, topic):
        results = {
            partition: _try_delete(TopicPartition(topic, partition), offset, services)
            for partition, offset in offsets.items()
        }
    else:
        refused = _Result(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NO_OFFSET)
        results = dict.fromkeys(offsets, refused)
    return shape(
        name=topic,
        partitions=tuple(
            shape["partitions"](
                partition_index=partition,
                low_watermark=result.low_watermark,
                error_code=result.code,
            )
            for partition, result in results.items()
        ),
    )


def _try_delete(tp: TopicPartition, offset: int, services: "Services") -> _Result:
    try:
        start = services.replicas.delete_records(tp, Offset(offset))
    except Refusal as refusal:
        return _Result(refusal.code, _NO_OFFSET)
    return _Result(ErrorCode.NONE, start)
