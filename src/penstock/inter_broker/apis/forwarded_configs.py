"""ForwardedConfigs (private key 31003), version 0: settings that a client changed elsewhere.

Clients may send those to any broker. The one that got them has asked for the client's permission;
this one, the controller, stores them. docs/inter_broker.md has the bytes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.apis.api import Api, Request
from penstock.apis.inter_broker_access import check_broker
from penstock.controller.interface import (
    ChangeKind,
    ConfigChange,
    ConfigScope,
    Refused,
    SettingChange,
)
from penstock.inter_broker.apis.responses import answer_refusal, answer_unsupported
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_messages import PrivateAnswer, PrivateResult, encode_answer

if TYPE_CHECKING:
    from penstock.apis.services import Services

FORWARD_VERSIONS = range(1)
_SCOPES = (ConfigScope.TOPIC, ConfigScope.BROKER)  # by their numbers on the wire


class ForwardedConfigs(NamedTuple):
    changes: tuple[ConfigChange, ...]
    validate_only: bool


async def answer(request: Request, services: "Services") -> bytes:
    asked: ForwardedConfigs = request.message
    try:
        configs = check_broker(request, services).configs
    except Refusal as refusal:
        return answer_refusal(refusal, FORWARD_VERSIONS)
    answers = await configs.alter_configs(asked.changes, validate_only=asked.validate_only)
    first, last = FORWARD_VERSIONS[0], FORWARD_VERSIONS[-1]
    results = tuple(map(_result, answers))
    return encode_answer(PrivateAnswer(ErrorCode.NONE, None, first, last, results=results))


def encode_forwarded(asked: ForwardedConfigs) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int8(int(asked.validate_only))
    writer.array(asked.changes, _write_change)
    writer.tags()
    return writer.done()


def decode_forwarded(body: Buffer) -> ForwardedConfigs:
    reader = ValueReader(body, flexible=True)
    validate_only = reader.int8() != 0
    changes = tuple(reader.array(_read_change))
    reader.tags()
    reader.end()
    return ForwardedConfigs(changes, validate_only)


def read_results(answer: PrivateAnswer, changes: Sequence[ConfigChange]) -> list[Refused | None]:
    """An answer for each change, whatever came back."""
    if answer.code is not ErrorCode.NONE:
        return [Refused(answer.code, answer.message or answer.code.message)] * len(changes)
    if len(answer.results) != len(changes):
        return [Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "not every change was answered")] * len(
            changes
        )
    return [
        None if each.code is ErrorCode.NONE else Refused(each.code, each.message or "")
        for each in answer.results
    ]


def _result(refused: Refused | None) -> PrivateResult:
    if refused is None:
        return PrivateResult(ErrorCode.NONE, None)
    return PrivateResult(refused.code, refused.message)


def _write_change(writer: ValueWriter, change: ConfigChange) -> None:
    writer.int8(_SCOPES.index(change.scope))
    writer.string(change.name)
    writer.int8(int(change.replace))
    writer.array(change.changes, _write_setting)
    writer.tags()


def _read_change(reader: ValueReader) -> ConfigChange:
    scope = reader.int8()
    if not 0 <= scope < len(_SCOPES):
        raise MalformedRecord(f"there are no settings of kind {scope}")
    change = ConfigChange(
        scope=_SCOPES[scope],
        name=reader.string(),
        replace=reader.int8() != 0,
        changes=tuple(reader.array(_read_setting)),
    )
    reader.tags()
    return change


def _write_setting(writer: ValueWriter, setting: SettingChange) -> None:
    writer.string(setting.name)
    writer.int8(setting.kind.value)
    writer.string(setting.value)
    writer.tags()


def _read_setting(reader: ValueReader) -> SettingChange:
    name, kind = reader.string(), reader.int8()
    if kind not in [each.value for each in ChangeKind]:
        raise MalformedRecord(f"a setting cannot be changed in the way {kind}")
    setting = SettingChange(name, ChangeKind(kind), reader.nullable_string())
    reader.tags()
    return setting


def _read(body: memoryview, version: int) -> ForwardedConfigs:
    return decode_forwarded(body)


API = Api(
    key=PrivateKey.FORWARDED_CONFIGS,
    versions=FORWARD_VERSIONS,
    answer=answer,
    read=_read,
    unsupported=answer_unsupported(FORWARD_VERSIONS),
)
