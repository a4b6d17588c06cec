"""DescribeConfigs (key 32), versions 1-4: all settings of a topic or broker, with their sources.

3 has types and documentation. The broker resource without a name is what was set for all brokers;
another broker's settings are that broker's to tell. There are no loggers whose level could be set,
so the resource of type 8 has no entries.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config.given import ConfigError
from penstock.handlers.api import Api, Request
from penstock.handlers.config_entries import (
    ConfigEntry,
    broker_entries,
    cluster_default_entries,
    shape_entries,
    topic_entries,
)
from penstock.handlers.config_resources import (
    ConfigResource,
    check_allowed,
    check_this_broker,
    get_resource,
    refuse_unsupported,
)
from penstock.handlers.shapes import Shape, response_shape
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import InvalidTopicName, check_topic_name
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import wire_error
from penstock.security.authorizer import Operation

if TYPE_CHECKING:
    from penstock.handlers.services import Services

_FIRST_WITH_DOCUMENTATION = 3


class _Asked(NamedTuple):
    """A resource once, however often it stands in the request: an answer is large."""

    code: int
    name: str
    only: frozenset[str] | None  # None: every setting


def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    asked = dict.fromkeys(map(_asked, request.message.resources))
    return shape(
        throttle_time=timedelta(),
        results=tuple(_result(shape["results"], each, request, services) for each in asked),
    )


API = Api(key=ApiKey.DESCRIBE_CONFIGS, versions=range(1, 5), answer=answer)


def _asked(resource: Any) -> _Asked:
    keys = resource.configuration_keys  # neither null nor an empty list asks for nothing
    only = frozenset(keys) if keys else None
    return _Asked(resource.resource_type, resource.resource_name, only)


def _result(shape: Shape, asked: _Asked, request: Request, services: "Services") -> Any:
    told = {"resource_type": asked.code, "resource_name": asked.name}
    try:
        entries = _describe(asked, request, services)
    except Refusal as refusal:
        message = refusal.message or refusal.code.message
        error_code = wire_error(refusal.code)
        return shape(**told, error_code=error_code, error_message=message, configs=())
    wants_documentation = (
        request.version >= _FIRST_WITH_DOCUMENTATION and request.message.include_documentation
    )
    return shape(
        **told,
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        configs=shape_entries(
            entries,
            shape["configs"],
            with_synonyms=request.message.include_synonyms,
            with_documentation=wants_documentation,
        ),
    )


def _describe(asked: _Asked, request: Request, services: "Services") -> list[ConfigEntry]:
    resource = get_resource(asked.code)
    check_allowed(request, services, Operation.DESCRIBE_CONFIGS, resource, asked.name)
    if resource is ConfigResource.TOPIC:
        return _describe_topic(asked.name, asked.only, services)
    if resource is ConfigResource.BROKER:
        return _describe_broker(asked.name, asked.only, services)
    if resource is ConfigResource.BROKER_LOGGER:
        check_this_broker(asked.name, services)
        return []
    raise refuse_unsupported(resource)


def _describe_topic(
    name: str, only: Collection[str] | None, services: "Services"
) -> list[ConfigEntry]:
    try:
        topic = services.cluster.find_topic(check_topic_name(name))
    except InvalidTopicName as error:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if topic is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}; create it first"
        )
    try:
        return topic_entries(topic.configs, services, only)
    except ConfigError as error:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"the stored settings of topic {name!r} do not hold any more, it runs with the "
            f"broker's; set or delete what is wrong: {error}",
        ) from None


def _describe_broker(
    name: str, only: Collection[str] | None, services: "Services"
) -> list[ConfigEntry]:
    if not name:
        return cluster_default_entries(services, only)
    check_this_broker(name, services)
    return broker_entries(services, only)
