"""Validates config changes before the controller is called; one result per resource, in order.

Shared by AlterConfigs and IncrementalAlterConfigs.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.admin import broker_loggers
from penstock.apis.admin.alterable_configs import find_refusal
from penstock.apis.admin.config_resources import (
    check_allowed,
    check_this_broker,
    get_resource,
    refuse_unsupported,
)
from penstock.apis.api import Request
from penstock.apis.error_text import clip
from penstock.apis.response_shapes import response_shape
from penstock.config.setting import SettingScope
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
)
from penstock.model.admin import ConfigOperation, ConfigResourceType
from penstock.model.errors import ErrorCode, Refusal
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

ReadChange = Callable[[Any], ConfigEntryChange]  # of one setting of the request, or Refusal


async def alter(
    request: Request, services: "Services", read_change: ReadChange, *, replace: bool
) -> Any:
    """The response to either request; `replace`: settings that are not named are removed."""
    resources = request.message.resources
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    checked = [
        _try_alter_levels(resource, counts, request, services, read_change)
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER and not replace
        else _try_check(resource, counts, request, services, read_change, replace)
        for resource in resources
    ]
    changes = [change for change in checked if isinstance(change, ConfigResourceChange)]
    answers = iter(await _apply(request, services, changes))
    shape = response_shape(request.key, request.version)
    results = (
        next(answers) if isinstance(item, ConfigResourceChange) else item for item in checked
    )
    return shape(
        throttle_time=timedelta(),
        responses=tuple(
            shape["responses"](
                error_code=(ErrorCode.NONE if refused is None else refused.code),
                error_message=None if refused is None else clip(refused.message),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, refused in zip(resources, results, strict=True)
        ),
    )


async def _apply(
    request: Request, services: "Services", changes: Sequence[ConfigResourceChange]
) -> Sequence[ApiError | None]:
    if not changes:
        return ()
    return await services.administration.alter_configs(
        changes, validate_only=request.message.validate_only
    )


def _try_check(
    resource: Any,
    counts: Counter[tuple[int, str]],
    request: Request,
    services: "Services",
    read_change: ReadChange,
    replace: bool,
) -> ConfigResourceChange | ApiError:
    try:
        scope, name = _check_resource(resource, request, services)
        times = counts[resource.resource_type, resource.resource_name]
        if times > 1:
            raise _invalid(
                f"{scope.value} {name!r} is named {times} times in the request; name it once"
            )
        changes = tuple(read_change(config) for config in resource.configs)
        _check_changes(changes, scope)
    except Refusal as refusal:
        return ApiError(refusal.code, refusal.message or refusal.code.message)
    return ConfigResourceChange(scope=scope, name=name, changes=changes, replace=replace)


def _try_alter_levels(
    resource: Any,
    counts: Counter[tuple[int, str]],
    request: Request,
    services: "Services",
    read_change: ReadChange,
) -> ApiError | None:
    """Levels of loggers are this broker's own, so that the controller is not asked."""
    name = resource.resource_name
    try:
        check_allowed(
            request, services, AclOperation.ALTER_CONFIGS, ConfigResourceType.BROKER_LOGGER, name
        )
        if counts[resource.resource_type, name] > 1:
            raise _invalid(f"the loggers of broker {name!r} are named more than once")
        changes = [read_change(config) for config in resource.configs]
        _check_names(changes)
        broker_loggers.alter(name, changes, services, validate_only=request.message.validate_only)
    except Refusal as refusal:
        return ApiError(refusal.code, refusal.message or refusal.code.message)
    return None


def _check_resource(
    resource: Any, request: Request, services: "Services"
) -> tuple[ConfigScope, str]:
    """The scope of the settings, if the caller may change them and this broker can."""
    kind = get_resource(resource.resource_type)
    name = resource.resource_name
    check_allowed(request, services, AclOperation.ALTER_CONFIGS, kind, name)
    if kind is ConfigResourceType.TOPIC:
        if not name:
            raise _invalid("a topic needs a name; defaults of all topics are settings of brokers")
        return ConfigScope.TOPIC, name
    if kind is ConfigResourceType.BROKER:
        if not name:
            return ConfigScope.BROKER, ""
        check_this_broker(name, services)
        return ConfigScope.BROKER, str(services.broker_id)
    if kind is ConfigResourceType.BROKER_LOGGER:
        # As in Kafka: AlterConfigs would reset every logger that it does not name.
        raise _invalid("use IncrementalAlterConfigs to change the levels of loggers")
    if kind is ConfigResourceType.GROUP:
        if not name:
            raise _invalid("a group needs a name; defaults of all groups are settings of brokers")
        return ConfigScope.GROUP, name
    raise refuse_unsupported(kind)


def _check_changes(changes: Sequence[ConfigEntryChange], scope: ConfigScope) -> None:
    _check_names(changes)
    for change in changes:
        if change.kind is ConfigOperation.DELETE:
            continue
        if change.value is None:
            raise _invalid(f"{change.name} has no value; delete it to get the default back")
        refusal = find_refusal(change.name, SettingScope(scope.value))
        if refusal is not None:
            raise refusal


def _check_names(changes: Sequence[ConfigEntryChange]) -> None:
    counts = Counter(change.name for change in changes)
    twice = [name for name, times in counts.items() if times > 1]
    if twice:
        raise _invalid(f"{', '.join(twice)} is given more than once; give each setting once")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
