"""CreateTopics (key 19), versions 2-7: one result per name, in the order of the request.

Version 5 added the new topic's partitions and settings, 7 its id; settings need DESCRIBE_CONFIGS. A
name that occurs twice is refused and not created.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster, allows_topic
from penstock.apis.admin.config_entries import overriding_entries, shape_entries
from penstock.apis.api import Api, Request
from penstock.apis.encoded_arrays import encode_array, fill_last_array
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import response_shape
from penstock.apis.throttling import refuse_mutations
from penstock.config.raw_config import ConfigError
from penstock.config.setting import SettingScope
from penstock.controller.interface import ApiError, CreatableTopic
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST
from penstock.model.cluster import BrokerId, TopicState
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

# KRaft's metadata topic: tools take a topic of this name for the cluster's own log.
_RESERVED_NAME = "__cluster_metadata"
_DEFAULT = -1
_FIRST_WITH_QUOTA = 6  # whose clients know THROTTLING_QUOTA_EXCEEDED
# A topic takes a millisecond if its settings are not shared; others are served in between.
_TOPICS_A_TURN = 5


async def answer(request: Request, services: "Services") -> bytes:
    """The response in bytes, built in turns: 10,000 topics with all their settings have 10 MB."""
    topics = {topic.name: topic for topic in request.message.topics}
    results: dict[str, TopicState | ApiError | None] = dict.fromkeys(topics)
    results.update(_find_refusals(request, services))
    wanted = [_new_topic(topics[name]) for name, refused in results.items() if refused is None]
    if services.quotas.is_active and not request.message.validate_only:
        exceeded = _find_exceeded(request, services, wanted)
        results.update(exceeded)
        wanted = [topic for topic in wanted if topic.name not in exceeded]
    made = await _create(request, services, wanted)
    results.update(zip((topic.name for topic in wanted), made, strict=True))
    response = _Response(request, services)
    encoded: list[bytes] = []
    for count, (name, result) in enumerate(results.items(), 1):
        encoded.append(response.encode_topic(name, result))
        if count % _TOPICS_A_TURN == 0:
            await asyncio.sleep(0)
    return response.encode_body(encoded)


API = Api(key=ApiKey.CREATE_TOPICS, versions=range(2, 8), answer=answer)


async def _create(
    request: Request, services: "Services", wanted: Sequence[CreatableTopic]
) -> Sequence[TopicState | ApiError]:
    if not wanted:
        return ()
    total = sum(_count_partitions(topic, services) for topic in wanted)
    if total > MAX_PARTITIONS_PER_REQUEST:  # all or none, as in Kafka, before any work
        refused = ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions, not {total}; "
            "send several requests",
        )
        return [refused] * len(wanted)
    return await services.administration.create_topics(
        wanted,
        validate_only=request.message.validate_only,
        timeout_ms=ms_of_delta(request.message.timeout),
    )


def _find_exceeded(
    request: Request, services: "Services", wanted: Sequence[CreatableTopic]
) -> dict[str, ApiError]:
    """Above the quota of the client. A topic that exists costs nothing: it is refused later."""
    partitions = {
        topic.name: _count_partitions(topic, services)
        for topic in wanted
        if services.metadata.find_topic(topic.name) is None
    }
    return refuse_mutations(request, partitions, first_refusing=_FIRST_WITH_QUOTA)


def _count_partitions(topic: CreatableTopic, services: "Services") -> int:
    if topic.assignment:
        return len(topic.assignment)
    if topic.partitions == _DEFAULT:
        return services.config().num_partitions
    return max(topic.partitions, 1)  # too few are refused later, per topic


def _find_refusals(request: Request, services: "Services") -> dict[str, ApiError]:
    """Refusals that need no look at the cluster; authorization comes first."""
    may_create_all = allows_cluster(request, services, AclOperation.CREATE, shows=True)
    counts = Counter(topic.name for topic in request.message.topics)
    refusals: dict[str, ApiError] = {}
    for topic in request.message.topics:
        name = topic.name
        if not may_create_all and not allows_topic(request, services, AclOperation.CREATE, name):
            refusals[name] = ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{request.caller.principal} may not create topic {name!r}; "
                "it needs CREATE on the topic or on the cluster",
            )
        elif counts[name] > 1:
            refusals[name] = ApiError(
                ErrorCode.INVALID_REQUEST,
                f"topic {name!r} is named {counts[name]} times in the request; name it once",
            )
        elif (refusal := _find_contradiction(topic)) is not None:
            refusals[name] = refusal
    return refusals


def _find_contradiction(topic: Any) -> ApiError | None:
    if topic.name == _RESERVED_NAME:
        return ApiError(
            ErrorCode.INVALID_REQUEST, f"{_RESERVED_NAME} is a reserved name; choose another"
        )
    if not topic.assignments:
        return None
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name!r} has a replica assignment, which determines the number of "
            "partitions and replicas: leave num_partitions and replication_factor at -1",
        )
    counts = Counter(assignment.partition_index for assignment in topic.assignments)
    partition, times = counts.most_common(1)[0]
    if times > 1:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {partition} of topic {topic.name!r} is assigned {times} times; "
            "assign it once",
        )
    return None


def _new_topic(topic: Any) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={
            assignment.partition_index: tuple(map(BrokerId, assignment.broker_ids))
            for assignment in topic.assignments
        },
        configs={config.name: config.value for config in topic.configs},
    )


class _Response:
    """The response to one request, while it is built."""

    def __init__(self, request: Request, services: "Services") -> None:
        self._request = request
        self._services = services
        self._shape = response_shape(request.key, request.version)
        self._is_flexible = request.version >= ApiKey.CREATE_TOPICS.first_flexible_version
        # By the topics' own settings: most topics of a request have the same.
        self._configs: dict[Hashable, bytes | ErrorCode] = {}

    def encode_body(self, topics: list[bytes]) -> bytes:
        empty = encode(self._shape(throttle_time=timedelta(), topics=()))
        return self._fill(empty, self._array(topics))

    def encode_topic(self, name: str, result: TopicState | ApiError | None) -> bytes:
        shape = self._shape["topics"]
        if isinstance(result, ApiError):
            message = clip(result.message)
            refused = {"error_code": result.code, "error_message": message, "configs": ()}
            return encode(shape(name=name, topic_id=None, **refused))
        assert result is not None, f"topic {name!r} was neither created nor refused"
        created = {
            "name": name,
            # Nothing was created, so there is no id.
            "topic_id": None if self._request.message.validate_only else result.topic_id,
            "error_code": ErrorCode.NONE,
            "error_message": None,
        }
        if "configs" not in shape:
            return encode(shape(**created))
        configs = self._find_configs(result)
        if isinstance(configs, ErrorCode):
            return encode(shape(**created, topic_config_error_code=configs.value, configs=()))
        described = shape(
            **created,
            num_partitions=len(result.partitions),
            replication_factor=len(result.partitions[0].replicas),
            configs=(),
        )
        return self._fill(encode(described), configs)

    def _find_configs(self, topic: TopicState) -> bytes | ErrorCode:
        """The settings, encoded, or why they are not described."""
        operation = AclOperation.DESCRIBE_CONFIGS
        if not allows_topic(self._request, self._services, operation, topic.name, shows=True):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        key = frozenset(topic.configs.items())
        if key not in self._configs:
            self._configs[key] = self._encode_configs(topic)
        return self._configs[key]

    def _encode_configs(self, topic: TopicState) -> bytes | ErrorCode:
        try:
            entries = overriding_entries(SettingScope.TOPIC, topic.configs, self._services)
        except ConfigError:  # valid for the controller, which may have other defaults
            return ErrorCode.INVALID_CONFIG
        shaped = shape_entries(entries, self._shape["topics"]["configs"])
        return self._array([encode(entry) for entry in shaped])

    def _array(self, items: list[bytes]) -> bytes:
        return encode_array(items, is_flexible=self._is_flexible)

    def _fill(self, message: bytes, array: bytes) -> bytes:
        return fill_last_array(message, array, is_flexible=self._is_flexible)
