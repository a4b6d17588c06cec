"""DescribeProducers (key 61), version 0: the producer state of partitions.

It shows which producer ids write to a partition and where an open transaction starts, so that an
operator can find a hanging one.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation
from penstock.storage.producer_state_manager import ProducerStateEntry

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.DESCRIBE_PRODUCERS
NO_TRANSACTION = -1


def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(KEY, request.version)
    topics = tuple(
        shape["topics"](
            name=topic.name,
            partitions=_answer_topic(request, services, shape["topics"]["partitions"], topic),
        )
        for topic in request.message.topics
    )
    return shape(throttle_time=timedelta(), topics=topics)


def _answer_topic(
    request: Request, services: "Services", shape: Shape, topic: Any
) -> tuple[Any, ...]:
    allowed = allows_topic(request, services, AclOperation.READ, topic.name)
    results = []
    for index in topic.partition_indexes:
        producers: tuple[Any, ...] = ()
        code, message = ErrorCode.NONE, None
        try:
            if not allowed:
                raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = services.replicas.get(TopicPartition(topic.name, index))
            partition.check_leader()
            entries = partition.log.producers.producers()
            producers = tuple(
                _build_producer(shape["active_producers"], entry) for entry in entries
            )
        except Refusal as refusal:
            code, message = refusal.code, refusal.message
        results.append(
            shape(
                partition_index=index,
                error_code=code,
                error_message=message,
                active_producers=producers,
            )
        )
    return tuple(results)


def _build_producer(shape: Shape, entry: ProducerStateEntry) -> Any:
    first_offset = entry.current_txn_first_offset
    return shape(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_TRANSACTION if first_offset is None else first_offset,
    )


API = Api(
    key=KEY,
    versions=range(1),
    answer=answer,
    elements_share=1 / 3,  # 20,000 partitions of a topic
)
