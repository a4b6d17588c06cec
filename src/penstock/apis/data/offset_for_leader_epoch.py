"""OffsetForLeaderEpoch (key 23), versions 2-4: where a leader epoch ended (KIP-101, KIP-320).

Consumers use it to detect truncation of what they have read. The result is the largest epoch up to
the requested one and its end offset; -1 for both if the log has none.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster, allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation
from penstock.storage.leader_epoch_cache import OffsetAndEpoch

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
UNKNOWN = OffsetAndEpoch(NO_LEADER_EPOCH, Offset(-1))


def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)
    is_broker = allows_cluster(request, services, AclOperation.CLUSTER_ACTION, shows=True)
    topics = tuple(
        shape["topics"](
            topic=topic.topic,
            partitions=_answer_topic(
                services,
                shape["topics"]["partitions"],
                topic,
                allowed=is_broker
                or allows_topic(request, services, AclOperation.DESCRIBE, topic.topic),
            ),
        )
        for topic in request.message.topics
    )
    return shape(throttle_time=timedelta(), topics=topics)


def _answer_topic(
    services: "Services", shape: Shape, topic: Any, *, allowed: bool
) -> tuple[Any, ...]:
    answers = []
    for requested in topic.partitions:
        try:
            if not allowed:
                raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            code = ErrorCode.NONE
            end = _find(services, TopicPartition(topic.topic, requested.partition), requested)
        except Refusal as refusal:
            code, end = refusal.code, UNKNOWN
        answers.append(
            shape(
                error_code=code,
                partition=requested.partition,
                leader_epoch=end.epoch,
                end_offset=end.end_offset,
            )
        )
    return tuple(answers)


def _find(services: "Services", tp: TopicPartition, requested: Any) -> OffsetAndEpoch:
    partition = services.replicas.get(tp)
    partition.check_leader(requested.current_leader_epoch)
    return partition.log.find_epoch_end(LeaderEpoch(requested.leader_epoch)) or UNKNOWN


API = Api(
    key=KEY,
    versions=range(2, 5),
    answer=answer,
    elements_share=0.7,  # 10,000 topics with a partition each, and more
)
