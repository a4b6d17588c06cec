"""DescribeConfigs (key 32), versions 1-4: all settings of a topic, broker or group.

Version 3 added types and documentation. The broker resource without a name has the settings of all
brokers; the settings of another broker are described by that broker only. The resource of
type 8 has the levels of the broker's loggers.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.admin import broker_loggers
from penstock.apis.admin.config_entries import (
    ResponseConfigEntry,
    broker_entries,
    cluster_default_entries,
    overriding_entries,
    shape_entries,
)
from penstock.apis.admin.config_resources import (
    check_allowed,
    check_this_broker,
    get_resource,
    refuse_unsupported,
)
from penstock.apis.api import Api, Request
from penstock.apis.encoded_arrays import encode_array, fill_last_array
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import response_shape
from penstock.config.raw_config import ConfigError
from penstock.config.setting import SettingScope
from penstock.model.admin import ConfigResourceType
from penstock.model.cluster import TopicState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import InvalidTopicName, check_topic_name
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.DESCRIBE_CONFIGS
_FIRST_WITH_DOCUMENTATION = 3
# About a millisecond each if nothing can be reused; other requests are served in between.
_RESOURCES_A_TURN = 5


async def answer(request: Request, services: "Services") -> bytes:
    """The response in bytes: tools describe all topics at once, and most have the same settings."""
    description = _Description(request, services)
    requested = dict.fromkeys(map(_requested, request.message.resources))
    results: list[bytes] = []
    for count, resource in enumerate(requested, 1):
        results.append(description.encode_result(resource))
        if count % _RESOURCES_A_TURN == 0:
            await asyncio.sleep(0)
    return description.encode_body(results)


API = Api(key=KEY, versions=range(1, 5), answer=answer)


class _RequestedResource(NamedTuple):
    """A resource, once even if the request names it twice, because a result is large."""

    code: int
    name: str
    only: frozenset[str] | None  # None: every setting


def _requested(resource: Any) -> _RequestedResource:
    keys = resource.configuration_keys  # null and an empty list both mean all
    only = frozenset(keys) if keys else None
    return _RequestedResource(resource.resource_type, resource.resource_name, only)


class _Description:
    """The response to one request, while it is built."""

    def __init__(self, request: Request, services: "Services") -> None:
        self._request = request
        self._services = services
        self._shape = response_shape(request.key, request.version)
        self._is_flexible = request.version >= KEY.first_flexible_version
        self._with_synonyms = request.message.include_synonyms
        self._with_documentation = (
            request.version >= _FIRST_WITH_DOCUMENTATION and request.message.include_documentation
        )
        self._encoded: dict[Hashable, bytes] = {}  # entries that several topics share

    def encode_body(self, results: list[bytes]) -> bytes:
        empty = encode(self._shape(throttle_time=timedelta(), results=()))
        return self._fill(empty, self._array(results))

    def encode_result(self, requested: _RequestedResource) -> bytes:
        try:
            entries = self._encode_entries(requested)
            refusal = Refusal(ErrorCode.NONE)
        except Refusal as raised:
            entries = self._array([])
            refusal = raised
        message = refusal.message or refusal.code.message or None
        empty = self._shape["results"](
            resource_type=requested.code,
            resource_name=requested.name,
            error_code=refusal.code,
            error_message=clip(message),
            configs=(),
        )
        return self._fill(encode(empty), entries)

    def _encode_entries(self, requested: _RequestedResource) -> bytes:
        request, services = self._request, self._services
        resource = get_resource(requested.code)
        check_allowed(request, services, AclOperation.DESCRIBE_CONFIGS, resource, requested.name)
        if resource is ConfigResourceType.TOPIC:
            topic = _get_topic(requested.name, services)
            key = frozenset(topic.configs.items()), requested.only
            return self._remember(key, lambda: _topic_entries(topic, requested.only, services))
        if resource is ConfigResourceType.BROKER:
            return self._encode(_broker_entries(requested.name, requested.only, services))
        if resource is ConfigResourceType.BROKER_LOGGER:
            return self._encode(broker_loggers.describe(requested.name, requested.only, services))
        if resource is ConfigResourceType.GROUP:
            return self._encode(_group_entries(requested.name, requested.only, services))
        raise refuse_unsupported(resource)

    def _remember(self, key: Hashable, make: Callable[[], list[ResponseConfigEntry]]) -> bytes:
        cached = self._encoded.get(key)
        if cached is None:
            cached = self._encoded[key] = self._encode(make())
        return cached

    def _encode(self, entries: list[ResponseConfigEntry]) -> bytes:
        shaped = shape_entries(
            entries,
            self._shape["results"]["configs"],
            with_synonyms=self._with_synonyms,
            with_documentation=self._with_documentation,
        )
        return self._array([encode(entry) for entry in shaped])

    def _array(self, items: list[bytes]) -> bytes:
        return encode_array(items, is_flexible=self._is_flexible)

    def _fill(self, message: bytes, array: bytes) -> bytes:
        return fill_last_array(message, array, is_flexible=self._is_flexible)


def _get_topic(name: str, services: "Services") -> TopicState:
    try:
        topic = services.metadata.find_topic(check_topic_name(name))
    except InvalidTopicName as error:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if topic is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}; create it first"
        )
    return topic


def _topic_entries(
    topic: TopicState, only: Collection[str] | None, services: "Services"
) -> list[ResponseConfigEntry]:
    try:
        return overriding_entries(SettingScope.TOPIC, topic.configs, services, only)
    except ConfigError as error:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"the stored settings of topic {topic.name!r} do not hold any more, it runs with the "
            f"broker's; set or delete what is wrong: {error}",
        ) from None


def _group_entries(
    name: str, only: Collection[str] | None, services: "Services"
) -> list[ResponseConfigEntry]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a group needs a name; describe one group")
    own = services.metadata.group_configs.get(name, {})
    try:
        return overriding_entries(SettingScope.GROUP, own, services, only)
    except ConfigError as error:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"the stored settings of group {name!r} do not fit the brokers' any more; set or "
            f"delete what is wrong: {error}",
        ) from None


def _broker_entries(
    name: str, only: Collection[str] | None, services: "Services"
) -> list[ResponseConfigEntry]:
    if not name:
        return cluster_default_entries(services, only)
    check_this_broker(name, services)
    return broker_entries(services, only)
