"""ForwardedConfigs (private key 31003), version 0: the request body and its results.

Only bytes and values: `inter_broker/apis/forwarded_configs.py` handles the request.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
)
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter
from penstock.protocol.private_response import PrivateResponse, PrivateResult
from penstock.protocol.request_budget import RequestBudget

FORWARDED_CONFIGS_VERSIONS = range(1)
_SCOPES = (ConfigScope.TOPIC, ConfigScope.BROKER, ConfigScope.GROUP)  # by their wire numbers


class ForwardedConfigsRequest(NamedTuple):
    changes: tuple[ConfigResourceChange, ...]
    validate_only: bool


def encode_forwarded_configs(request: ForwardedConfigsRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int8(int(request.validate_only))
    writer.array(request.changes, _write_change)
    writer.tags()
    return writer.done()


def decode_forwarded_configs(
    body: Buffer, budget: RequestBudget | None = None
) -> ForwardedConfigsRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    validate_only = reader.int8() != 0
    changes = tuple(reader.array(_read_change))
    reader.tags()
    reader.end()
    return ForwardedConfigsRequest(changes, validate_only)


def as_private_result(refused: ApiError | None) -> PrivateResult:
    if refused is None:
        return PrivateResult(ErrorCode.NONE, None)
    return PrivateResult(refused.code, refused.message)


def read_results(
    response: PrivateResponse, changes: Sequence[ConfigResourceChange]
) -> list[ApiError | None]:
    """One result per change, even where the response has too few."""
    if response.code is not ErrorCode.NONE:
        return [ApiError(response.code, response.message or response.code.message)] * len(changes)
    if len(response.results) != len(changes):
        missing = ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the controller returned {len(response.results)} results for {len(changes)} changes",
        )
        return [missing] * len(changes)
    return [
        None if result.code is ErrorCode.NONE else ApiError(result.code, result.message or "")
        for result in response.results
    ]


def _write_change(writer: ValueWriter, change: ConfigResourceChange) -> None:
    writer.int8(_SCOPES.index(change.scope))
    writer.string(change.name)
    writer.int8(int(change.replace))
    writer.array(change.changes, _write_setting)
    writer.tags()


def _read_change(reader: ValueReader) -> ConfigResourceChange:
    scope = reader.int8()
    if not 0 <= scope < len(_SCOPES):
        raise MalformedRecord(f"unknown config scope {scope}")
    change = ConfigResourceChange(
        scope=_SCOPES[scope],
        name=reader.string(),
        replace=reader.int8() != 0,
        changes=tuple(reader.array(_read_setting)),
    )
    reader.tags()
    return change


def _write_setting(writer: ValueWriter, setting: ConfigEntryChange) -> None:
    writer.string(setting.name)
    writer.int8(setting.kind.value)
    writer.string(setting.value)
    writer.tags()


def _read_setting(reader: ValueReader) -> ConfigEntryChange:
    name, kind = reader.string(), reader.int8()
    if kind not in [operation.value for operation in ConfigOperation]:
        raise MalformedRecord(f"unknown config operation {kind}")
    setting = ConfigEntryChange(name, ConfigOperation(kind), reader.nullable_string())
    reader.tags()
    return setting
