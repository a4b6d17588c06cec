"""AlterUserScramCredentials (key 51), version 0: creates, changes and deletes SCRAM users.

The client salts the password and iterates: the broker never sees it. All changes of a user are made
together or not at all; one result for each user. Any broker may be asked.
"""

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.acl_messages import build_result
from penstock.apis.admin.scram_messages import MECHANISMS, STORE_ERRORS, refuse_user
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import MalformedRequest, RequestOverLimit
from penstock.protocol.messages import decode_request
from penstock.protocol.request_budget import RequestBudget
from penstock.protocol.scram import (
    ScramCredential,
    ScramError,
    ScramMechanism,
    credential_of_salted,
)
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

_MAX_NAME = 1_000
_MAX_SALT_BYTES = 1_024


async def answer(request: Request, services: "Services") -> Any:
    by_user: dict[str, list[Any]] = defaultdict(list)
    for wanted in (*request.message.deletions, *request.message.upsertions):
        by_user[wanted.name].append(wanted)
    may_alter = allows_cluster(request, services, AclOperation.ALTER)
    results = {
        user: await _alter(request, services, user, wanted_changes) if may_alter else _deny(request)
        for user, wanted_changes in by_user.items()
    }
    shape = response_shape(request.key, request.version)
    return shape(
        throttle_time=timedelta(),
        results=tuple(
            build_result(shape["results"], refused, user=user) for user, refused in results.items()
        ),
    )


def read(body: memoryview, version: int, budget: RequestBudget) -> Any:
    """librdkafka (at least up to 2.16) ends the request with one zero byte too many, which Kafka
    ignores."""
    try:
        return decode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, body, budget)
    except RequestOverLimit:
        raise
    except MalformedRequest:
        if not body or body[-1]:
            raise
        return decode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, body[:-1], budget)


API = Api(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=range(1),
    read=read,
    answer=answer,
    elements_share=1 / 2,  # each is a znode of its own
)


def _deny(request: Request) -> ApiError:
    return ApiError(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        f"{request.caller.principal} needs ALTER on the cluster",
    )


async def _alter(
    request: Request, services: "Services", user: str, wanted_changes: list[Any]
) -> ApiError | None:
    try:
        changes = _read_changes(user, wanted_changes)
        await services.scram_users.alter(user, changes)
    except Refusal as refusal:
        return ApiError(refusal.code, str(refusal))
    except STORE_ERRORS as error:
        return refuse_user(error)
    what = ", ".join(
        f"{mechanism.value} {'deleted' if credential is None else 'set'}"
        for mechanism, credential in changes.items()
    )
    services.logger.info(
        "user_altered", f"{request.caller.principal} has altered user {user[:100]!r}: {what}"
    )
    return None


def _read_changes(
    user: str, wanted_changes: list[Any]
) -> dict[ScramMechanism, ScramCredential | None]:
    if not user or len(user) > _MAX_NAME or "\0" in user:
        raise Refusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a user name has 1 to {_MAX_NAME} characters, and no NUL",
        )
    changes: dict[ScramMechanism, ScramCredential | None] = {}
    for wanted in wanted_changes:
        mechanism = MECHANISMS.get(wanted.mechanism)
        if mechanism is None:
            raise Refusal(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"there is no SCRAM mechanism {wanted.mechanism}",
            )
        if mechanism in changes:
            raise Refusal(
                ErrorCode.DUPLICATE_RESOURCE,
                f"{mechanism.value} of a user cannot be altered twice in one request",
            )
        is_upsertion = hasattr(wanted, "salted_password")
        changes[mechanism] = _read_credential(mechanism, wanted) if is_upsertion else None
    return changes


def _read_credential(mechanism: ScramMechanism, upsertion: Any) -> ScramCredential:
    salt, salted = bytes(upsertion.salt), bytes(upsertion.salted_password)
    if not 0 < len(salt) <= _MAX_SALT_BYTES or len(salted) != mechanism.key_bytes:
        raise Refusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a salt has 1 to {_MAX_SALT_BYTES} bytes, and a salted password of "
            f"{mechanism.value} {mechanism.key_bytes}",
        )
    try:
        return credential_of_salted(mechanism, salted, salt=salt, iterations=upsertion.iterations)
    except ScramError as error:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
