"""The resource BROKER_LOGGER of DescribeConfigs and IncrementalAlterConfigs (KIP-412): log levels.

A broker answers for its own loggers only, at once and without the controller, and forgets the
levels when it ends. Changes of one resource are applied all together or not at all.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from penstock.apis.admin.config_entries import ResponseConfigEntry
from penstock.apis.admin.config_resources import check_this_broker
from penstock.controller.interface import ConfigEntryChange
from penstock.logs import logger_levels
from penstock.logs.levels import INFO
from penstock.logs.logger_levels import ROOT_NAME, UnknownLevel, UnknownLogger
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from penstock.apis.services import Services

DYNAMIC_BROKER_LOGGER_CONFIG = 6  # a config source
_STRING_TYPE = 2


def describe(
    name: str, only: Collection[str] | None, services: "Services"
) -> list[ResponseConfigEntry]:
    _check_broker(name, services)
    return [
        ResponseConfigEntry(
            name=logger,
            value=level,
            read_only=False,
            config_source=DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=(),
            config_type=_STRING_TYPE,
            documentation="Level from which on this component logs.",
        )
        for logger, level in logger_levels.list_levels().items()
        if only is None or logger in only
    ]


def alter(
    name: str, changes: Sequence[ConfigEntryChange], services: "Services", *, validate_only: bool
) -> None:
    """Refusal if one of them is not possible; then nothing is changed."""
    _check_broker(name, services)
    for change in changes:
        _check(change)
    if validate_only:
        return
    was_logged = services.logger.is_enabled(INFO)
    if was_logged:  # before, because it may be the last line that this level lets through
        _log(changes, services)
    for change in changes:
        if change.kind is ConfigOperation.DELETE:
            logger_levels.reset_level(change.name)
        else:
            assert change.value is not None
            logger_levels.set_level(change.name, change.value)
    if not was_logged:
        _log(changes, services)


def _log(changes: Sequence[ConfigEntryChange], services: "Services") -> None:
    services.logger.info(
        "log_levels_changed",
        loggers=[f"{change.name}={change.value or ROOT_NAME}" for change in changes],
    )


def _check_broker(name: str, services: "Services") -> None:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_this_broker(name, services, has_defaults=False)


def _check(change: ConfigEntryChange) -> None:
    try:
        if change.kind not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{change.kind.name} operation is not allowed for the BROKER_LOGGER resource",
            )
        logger_levels.check_logger(change.name)
        if change.kind is ConfigOperation.DELETE:
            _check_delete(change.name)
        else:
            logger_levels.check_level(change.name, change.value or "null")
    except (UnknownLogger, UnknownLevel) as problem:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(problem)) from None


def _check_delete(logger: str) -> None:
    if logger == ROOT_NAME:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Removing the log level of the {ROOT_NAME} logger is not allowed",
        )
