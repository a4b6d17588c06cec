"""JoinGroup (key 11), versions 0-9: joins a group and its next generation.

Version 1 added the rebalance time-out, 4 MEMBER_ID_REQUIRED for a new member (KIP-394), 5 static
members (KIP-345), 7 the protocol type, 8 a reason, 9 leaders that skip the assignment (KIP-814).
The response waits until the other members have joined.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group
from penstock.apis.api import Api, EntryBounds, Request
from penstock.apis.groups.client_identity import client_host, client_id
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.group.requests import (
    UNKNOWN_MEMBER,
    JoinGroup,
    JoinGroupReply,
    MemberProtocol,
)
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.entry_counts import Excess
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.JOIN_GROUP
FIRST_WITH_MEMBER_ID_REQUIRED = 4
FIRST_WITH_NULL_PROTOCOL = 7
FIRST_WITH_SKIPPING = 9


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    if not allows_group(request, services, AclOperation.READ, request.message.group_id):
        denied = JoinGroupReply(error=ErrorCode.GROUP_AUTHORIZATION_FAILED, member=UNKNOWN_MEMBER)
        return _build(request.version, denied)
    return _join(request, services)


async def _join(request: Request, services: "Services") -> Any:
    return _build(request.version, await services.groups.join(_read(request), request.in_flight))


def _read(request: Request) -> JoinGroup:
    message = request.message
    # Version 0 has one time-out for both.
    rebalance_timeout = getattr(message, "rebalance_timeout", message.session_timeout)
    return JoinGroup(
        group=message.group_id,
        member=message.member_id,
        instance=getattr(message, "group_instance_id", None),
        client_id=client_id(request),
        client_host=client_host(request),
        session_timeout_ms=ms_of_delta(message.session_timeout),
        rebalance_timeout_ms=ms_of_delta(rebalance_timeout),
        protocol_type=message.protocol_type,
        protocols=tuple(
            MemberProtocol(protocol.name, protocol.metadata) for protocol in message.protocols
        ),
        requires_known_member=request.version >= FIRST_WITH_MEMBER_ID_REQUIRED,
        supports_skipping_assignment=request.version >= FIRST_WITH_SKIPPING,
        reason=getattr(message, "reason", None),
    )


def _build(version: int, reply: JoinGroupReply) -> Any:
    shape = response_shape(KEY, version)
    takes_null = version >= FIRST_WITH_NULL_PROTOCOL
    return shape(
        throttle_time=timedelta(),
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if takes_null else reply.protocol or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member,
        members=tuple(
            shape["members"](
                member_id=member.member,
                group_instance_id=member.instance,
                metadata=member.metadata,
            )
            for member in reply.members
        ),
    )


def _refuse(version: int, _: Excess) -> Any:
    return _build(version, JoinGroupReply(error=ErrorCode.INVALID_REQUEST, member=UNKNOWN_MEMBER))


API = Api(
    key=KEY,
    versions=range(10),
    answer=answer,
    bounds=EntryBounds(
        limits=lambda config: {"protocols": config.max_group_protocols}, refuse=_refuse
    ),
)
