"""Metadata (key 3), versions 0-12: brokers, topics and partition leaders.

Version 0 requests all topics with an empty list, later ones with null; version 4 added the flag for
auto-creation, 10 topic ids in responses, 12 requests by topic id. An auto-created topic is in the
response with its leaders, so the client need not retry.
"""

from collections.abc import Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.apis.access import (
    OPERATIONS_NOT_ASKED,
    allows_cluster,
    allows_topic,
    authorized_operations,
)
from penstock.apis.api import Api, Request
from penstock.apis.cluster.listener_addresses import broker_address
from penstock.apis.cluster.metadata_response import ResponseBroker, TopicEncoder, encode_body
from penstock.apis.throttling import find_throttle
from penstock.controller.interface import ApiError, CreatableTopic
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST
from penstock.model.cluster import INTERNAL_TOPICS, TopicState
from penstock.model.errors import ErrorCode
from penstock.model.ids import InvalidTopicName, TopicId, check_topic_name
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.first_requests import RequestedTopic, read_metadata_request
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, AllowAll, ResourceType

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.METADATA
FIRST_WITH_REQUESTS_BY_ID = 12
_MAX_FULL_RESPONSES = 64  # cached: versions in use, times addresses that clients connect to
_NO_REFUSALS: Mapping[str, ErrorCode] = {}


class MetadataResponseCache:
    """Encoded responses of one broker. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._encoders: dict[tuple[int, str], TopicEncoder] = {}
        # (version, listener, address) -> (metadata version, the full body)
        self.whole: dict[tuple[object, ...], tuple[int, bytes]] = {}

    def encoder(self, version: int, listener: str, services: "Services") -> TopicEncoder:
        key = version, listener
        if key not in self._encoders:
            self._encoders[key] = TopicEncoder(version, listener, services.broker_id)
        return self._encoders[key]


def answer(request: Request, services: "Services") -> bytes | Coroutine[Any, Any, bytes]:
    requested = request.message.topics
    if requested is None or (request.version == 0 and not requested):
        return _answer_all(request, services)
    if request.version < FIRST_WITH_REQUESTS_BY_ID and not all(map(_is_by_name, requested)):
        return _refuse_topic_ids(request, services)
    absent = _find_to_create(request, services)
    if absent:
        return _create_and_answer(request, services, absent)
    return _answer_named(request, services, _NO_REFUSALS)


# -- all topics ----------------------------------------------------------------------------


def _answer_all(request: Request, services: "Services") -> bytes:
    """Topics that the caller may not describe are left out."""
    topics = services.metadata.topics
    seen = _list_visible(request, services, topics)
    if len(seen) < len(topics) or _depends_on_caller(request):
        return _build(request, services, _encode_topics(request, services, seen))
    return _answer_everything(request, services, seen)


def _list_visible(
    request: Request, services: "Services", topics: Mapping[str, TopicState]
) -> Collection[TopicState]:
    if isinstance(services.authorizer, AllowAll):  # 10,000 calls take longer than all the rest
        return topics.values()
    return [
        topic
        for name, topic in topics.items()
        if allows_topic(request, services, AclOperation.DESCRIBE, name, shows=True)
    ]


def _answer_everything(
    request: Request, services: "Services", topics: Collection[TopicState]
) -> bytes:
    """The body for callers that may see all topics: built once per metadata version."""
    in_flight = request.in_flight
    address = (in_flight.local_host, in_flight.local_port)
    key = (request.version, request.caller.listener, address)
    whole = services.metadata_responses.whole
    cached = whole.get(key)
    if cached is not None and cached[0] == services.metadata.version:
        return cached[1]
    if len(whole) >= _MAX_FULL_RESPONSES:
        whole.clear()
    body = _build(request, services, _encode_topics(request, services, topics))
    whole[key] = services.metadata.version, body
    return body


# -- named topics --------------------------------------------------------------------------


def _answer_named(
    request: Request, services: "Services", refused: Mapping[str, ErrorCode]
) -> bytes:
    """`refused`: why topics could not be auto-created."""
    encoder = _encoder(request, services)
    entries: dict[object, bytes] = {}  # a topic that is named twice is sent once
    for requested in request.message.topics:
        if requested.topic_id is not None:
            entries[requested.topic_id] = _topic_of_id(
                request, services, encoder, requested.topic_id
            )
        elif requested.name is None:
            entries[None] = encoder.encode_missing(ErrorCode.INVALID_REQUEST, None)
        elif requested.name not in entries:
            entries[requested.name] = _topic_named(
                request, services, encoder, requested.name, refused
            )
    return _build(request, services, list(entries.values()))


def _topic_named(
    request: Request,
    services: "Services",
    encoder: TopicEncoder,
    name: str,
    refused: Mapping[str, ErrorCode],
) -> bytes:
    if not _may_describe(request, services, name):
        return encoder.encode_missing(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    topic = services.metadata.find_topic(name)
    if topic is not None:
        return _encode_topics(request, services, [topic])[0]
    if not _is_valid_name(name):
        return encoder.encode_missing(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if _creates_topics(request, services) and not _may_create(request, services, name):
        return encoder.encode_missing(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    error = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return encoder.encode_missing(error, name)


def _topic_of_id(
    request: Request, services: "Services", encoder: TopicEncoder, topic_id: UUID
) -> bytes:
    """Ids are not secret but names are, so without DESCRIBE the name is left out."""
    name = services.metadata.find_name(TopicId(topic_id))
    if name is None:
        return encoder.encode_missing(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id.bytes)
    if not _may_describe(request, services, name):
        return encoder.encode_missing(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id.bytes)
    topic = services.metadata.find_topic(name)
    assert topic is not None, f"the id of {name} is known, the topic is not"
    return _encode_topics(request, services, [topic])[0]


def _refuse_topic_ids(request: Request, services: "Services") -> bytes:
    """Versions 10 and 11 have ids in the schema, but only in responses."""
    encoder = _encoder(request, services)
    return _build(
        request,
        services,
        [
            encoder.encode_missing(ErrorCode.INVALID_REQUEST, requested.name or "")
            for requested in request.message.topics
        ],
    )


def _is_by_name(requested: RequestedTopic) -> bool:
    return requested.name is not None and requested.topic_id is None


# -- auto-creation -------------------------------------------------------------------------


def _find_to_create(request: Request, services: "Services") -> list[str]:
    """The topics to auto-create: absent, allowed and valid."""
    if not _creates_topics(request, services):
        return []
    metadata = services.metadata
    names = dict.fromkeys(
        requested.name for requested in request.message.topics if _is_by_name(requested)
    )
    return [
        name
        for name in names
        if _may_describe(request, services, name)
        and metadata.find_topic(name) is None
        and name not in INTERNAL_TOPICS  # created by their coordinators
        and _is_valid_name(name)
        and _may_create(request, services, name)
    ]


async def _create_and_answer(request: Request, services: "Services", names: list[str]) -> bytes:
    config = services.config()
    if len(names) * config.num_partitions > MAX_PARTITIONS_PER_REQUEST:
        return _answer_named(request, services, dict.fromkeys(names, ErrorCode.POLICY_VIOLATION))
    throttle = find_throttle(request)
    if throttle is not None:  # Metadata has no error for it: the client is made to wait
        throttle.try_use_mutations(len(names) * config.num_partitions, must_succeed=True)
    topics = [
        CreatableTopic(
            name=name,
            partitions=config.num_partitions,
            replication_factor=config.default_replication_factor,
        )
        for name in names
    ]
    results = await services.administration.create_topics(
        topics, validate_only=False, timeout_ms=config.request_timeout_ms
    )
    refused = {
        name: _why_absent(result.code) if isinstance(result, ApiError) else _NOT_YET
        for name, result in zip(names, results, strict=True)
    }
    return _answer_named(request, services, refused)


_NOT_YET = ErrorCode.LEADER_NOT_AVAILABLE  # clients retry soon


def _why_absent(code: ErrorCode) -> ErrorCode:
    """A creation, ours or another's, may be in progress: clients retry on this code."""
    if code is ErrorCode.TOPIC_ALREADY_EXISTS or code.is_retriable:
        return _NOT_YET
    return code


def _creates_topics(request: Request, services: "Services") -> bool:
    if not request.message.allow_auto_topic_creation:
        return False
    return services.config().auto_creates_topics


def _is_valid_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


# -- permissions ---------------------------------------------------------------------------


def _may_describe(request: Request, services: "Services", name: str) -> bool:
    return allows_topic(request, services, AclOperation.DESCRIBE, name)


def _may_create(request: Request, services: "Services", name: str) -> bool:
    return allows_cluster(request, services, AclOperation.CREATE, shows=True) or allows_topic(
        request, services, AclOperation.CREATE, name
    )


def _wants_operations(request: Request) -> bool:
    return bool(request.message.include_topic_authorized_operations)


def _depends_on_caller(request: Request) -> bool:
    """Whether the response has what this principal may do, of topics or of the cluster."""
    return _wants_operations(request) or bool(request.message.include_cluster_authorized_operations)


def _cluster_operations(request: Request, services: "Services") -> int:
    if not request.message.include_cluster_authorized_operations:
        return OPERATIONS_NOT_ASKED
    if not allows_cluster(request, services, AclOperation.DESCRIBE, shows=True):
        return 0
    return authorized_operations(request, services, ResourceType.CLUSTER, CLUSTER_NAME)


# -- encoding ------------------------------------------------------------------------------


def _encoder(request: Request, services: "Services") -> TopicEncoder:
    return services.metadata_responses.encoder(request.version, request.caller.listener, services)


def _encode_topics(
    request: Request, services: "Services", topics: Collection[TopicState]
) -> list[bytes]:
    encoder = _encoder(request, services)
    encoded = encoder.encode(topics, services.metadata)
    if not _wants_operations(request):
        return encoded
    return [
        encoder.with_operations(
            topic_bytes, authorized_operations(request, services, ResourceType.TOPIC, topic.name)
        )
        for topic, topic_bytes in zip(topics, encoded, strict=True)
    ]


def _build(request: Request, services: "Services", topics: list[bytes]) -> bytes:
    return encode_body(
        request.version,
        brokers=_list_brokers(request, services),
        cluster_id=services.cluster_id,
        controller_id=services.metadata.controller_id,
        topics=topics,
        operations=_cluster_operations(request, services),
    )


def _list_brokers(request: Request, services: "Services") -> list[ResponseBroker]:
    nodes = services.metadata.brokers.values()
    addresses = ((node, broker_address(node, request, services)) for node in nodes)
    return [
        ResponseBroker(node.id, address[0], address[1], node.rack)
        for node, address in addresses
        if address is not None
    ]


API = Api(
    key=KEY,
    versions=range(13),
    answer=answer,
    read=read_metadata_request,
    elements_share=1 / 2,  # 15,000 topics
)
