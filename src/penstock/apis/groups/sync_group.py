"""SyncGroup (key 14), versions 0-5: the leader sends the assignment, every member gets its part.

Version 3 added static members, 5 the protocol type and name, which a member must then send. The
response waits for the leader's request.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, EntryBounds, Request
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.group.requests import SyncGroup, SyncGroupReply
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.entry_counts import Excess
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.SYNC_GROUP
FIRST_WITH_PROTOCOL = 5
MAX_FRAME_BYTES = 20 << 20  # assignments of 16 KiB for 1,000 members, which are bytes to us


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    if not allows_group(request, services, AclOperation.READ, request.message.group_id):
        return _build(request.version, SyncGroupReply(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    sync = _read(request)
    if request.version >= FIRST_WITH_PROTOCOL and None in (sync.protocol_type, sync.protocol):
        return _build(request.version, SyncGroupReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    return _sync(request, services, sync)


async def _sync(request: Request, services: "Services", sync: SyncGroup) -> Any:
    return _build(request.version, await services.groups.sync(sync))


def _read(request: Request) -> SyncGroup:
    message = request.message
    return SyncGroup(
        group=message.group_id,
        member=message.member_id,
        instance=getattr(message, "group_instance_id", None),
        generation=message.generation_id,
        protocol_type=getattr(message, "protocol_type", None),
        protocol=getattr(message, "protocol_name", None),
        assignments={assigned.member_id: assigned.assignment for assigned in message.assignments},
    )


def _build(version: int, reply: SyncGroupReply) -> Any:
    return response_shape(KEY, version)(
        throttle_time=timedelta(),
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def _refuse(version: int, _: Excess) -> Any:
    return _build(version, SyncGroupReply(error=ErrorCode.INVALID_REQUEST))


API = Api(
    key=KEY,
    versions=range(6),
    answer=answer,
    bounds=EntryBounds(
        limits=lambda config: {"assignments": config.max_group_entries}, refuse=_refuse
    ),
    max_frame_bytes=MAX_FRAME_BYTES,
)
