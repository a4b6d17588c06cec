"""DescribeTopicPartitions (key 75), version 0: topics in pages, in the order of their names.

No topics in the request means all of them. A page ends after so many partitions, and its cursor is
where the next one starts (KIP-966). Eligible leader replicas are not tracked, so their lists are
empty; Java's client does not accept null.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import OPERATIONS_NOT_ASKED, allows_topic, authorized_operations
from penstock.apis.api import Api, Request
from penstock.apis.cluster.listener_addresses import broker_address
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.cluster import NO_BROKER, BrokerId, TopicState
from penstock.model.errors import ErrorCode
from penstock.model.ids import InvalidTopicName, TopicPartition, check_topic_name
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> Any:
    if _is_invalid(request):
        return _refuse(request)
    page = _Page(request, services)
    for name in _names(request, services):
        if not page.try_add(name):
            break
    return page.response()


API = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=range(1),
    answer=answer,
)


def _is_invalid(request: Request) -> bool:
    """A cursor must point at a partition of a requested topic."""
    cursor, topics = request.message.cursor, request.message.topics
    if cursor is None:
        return False
    is_requested = not topics or any(topic.name == cursor.topic_name for topic in topics)
    return cursor.partition_index < 0 or not is_requested


def _refuse(request: Request) -> Any:
    """The error is returned for every topic, because the response has no other field for it."""
    shape = response_shape(request.key, request.version)
    names = dict.fromkeys(topic.name for topic in request.message.topics)
    code = ErrorCode.INVALID_REQUEST
    return shape(
        throttle_time=timedelta(),
        topics=tuple(_failed_topic(shape["topics"], name, code) for name in names),
        next_cursor=None,
    )


def _names(request: Request, services: "Services") -> Sequence[str]:
    requested = {topic.name for topic in request.message.topics}
    cursor = request.message.cursor
    first = "" if cursor is None else cursor.topic_name
    return sorted(name for name in requested or services.metadata.topics if name >= first)


class _Page:
    """One response, while it is filled."""

    def __init__(self, request: Request, services: "Services") -> None:
        self._request = request
        self._services = services
        self._shape = response_shape(request.key, request.version)
        self._asks_for_all = not request.message.topics
        self._reachable = frozenset(_reachable(request, services))
        limit = services.config().max_described_partitions
        self._left = max(1, min(limit, request.message.response_partition_limit))
        self._topics: list[Any] = []
        self._next: tuple[str, int] | None = None  # None: this page is the last

    def try_add(self, name: str) -> bool:
        """False: the page is full, and the next one starts with this topic or in it."""
        operation, shows = AclOperation.DESCRIBE, self._asks_for_all
        if not allows_topic(self._request, self._services, operation, name, shows=shows):
            if not self._asks_for_all:
                self._add_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return True
        if self._left == 0:
            self._next = name, 0
            return False
        topic = self._services.metadata.find_topic(name)
        if topic is None:
            self._add_failed(name, _why_absent(name))
            return True
        return self._try_add_topic(topic)

    def response(self) -> Any:
        cursor = None
        if self._next is not None:
            name, partition = self._next
            cursor = self._shape["next_cursor"](topic_name=name, partition_index=partition)
        return self._shape(
            throttle_time=timedelta(), topics=tuple(self._topics), next_cursor=cursor
        )

    def _try_add_topic(self, topic: TopicState) -> bool:
        first = self._first_partition(topic.name)
        end = min(len(topic.partitions), first + self._left)
        shape = self._shape["topics"]
        self._topics.append(
            shape(
                error_code=ErrorCode.NONE,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=tuple(
                    self._partition(shape["partitions"], topic, number)
                    for number in range(first, end)
                ),
                topic_authorized_operations=authorized_operations(
                    self._request, self._services, ResourceType.TOPIC, topic.name
                ),
            )
        )
        self._left -= max(0, end - first)
        if end < len(topic.partitions):
            self._next = topic.name, end
            return False
        return True

    def _first_partition(self, name: str) -> int:
        cursor = self._request.message.cursor
        is_cursors = cursor is not None and cursor.topic_name == name
        return cursor.partition_index if is_cursors else 0

    def _partition(self, shape: Shape, topic: TopicState, number: int) -> Any:
        state = topic.partitions[number]
        failed = self._services.metadata.failed.get(TopicPartition(topic.name, number), ())
        return shape(
            error_code=ErrorCode.NONE,
            partition_index=number,
            leader_id=state.leader if state.leader in self._reachable else NO_BROKER,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.in_sync,
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=tuple(
                broker
                for broker in state.replicas
                if broker not in self._reachable or broker in failed
            ),
        )

    def _add_failed(self, name: str, code: ErrorCode) -> None:
        self._topics.append(_failed_topic(self._shape["topics"], name, code))


def _reachable(request: Request, services: "Services") -> Iterable[BrokerId]:
    """The live brokers that have the client's listener."""
    for node in services.metadata.brokers.values():
        if broker_address(node, request, services) is not None:
            yield node.id


def _why_absent(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed_topic(shape: Shape, name: str, code: ErrorCode) -> Any:
    return shape(
        error_code=code,
        name=name,
        topic_id=None,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=OPERATIONS_NOT_ASKED,
    )
