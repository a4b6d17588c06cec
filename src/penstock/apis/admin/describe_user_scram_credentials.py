"""DescribeUserScramCredentials (key 50), version 0: mechanisms and iterations, never a secret.

No users, or null, asks for all. A user that is named twice gets an error, as in Kafka.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_cluster
from penstock.apis.admin.acl_messages import build_result
from penstock.apis.admin.scram_messages import STORE_ERRORS, refuse_user
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import Shape, response_shape
from penstock.controller.interface import ApiError
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services
    from penstock.controller.scram_store import KeepsScramUsers
    from penstock.controller.scram_znodes import Credentials


async def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    if not allows_cluster(request, services, AclOperation.DESCRIBE):
        denied = ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.caller.principal} needs DESCRIBE on the cluster",
        )
        return build_result(shape, denied, throttle_time=timedelta(), results=())
    names = [user.name for user in request.message.users or ()]
    try:
        described = await _describe(services.scram_users, names)
    except STORE_ERRORS as error:
        return build_result(shape, refuse_user(error), throttle_time=timedelta(), results=())
    results = tuple(_build(shape["results"], user, what) for user, what in described.items())
    return build_result(shape, None, throttle_time=timedelta(), results=results)


API = Api(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=range(1),
    answer=answer,
    elements_share=1 / 2,  # each is a znode of its own
)


async def _describe(
    store: "KeepsScramUsers", names: Sequence[str]
) -> "dict[str, Credentials | ApiError]":
    if not names:
        return dict(await store.list_users())
    counts = Counter(names)
    return {name: await _describe_one(store, name, counts[name]) for name in counts}


async def _describe_one(
    store: "KeepsScramUsers", name: str, times_named: int
) -> "Credentials | ApiError":
    if times_named > 1:
        return ApiError(ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once")
    credentials = await store.read(name)
    if not credentials:
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials")
    return credentials


def _build(shape: Shape, user: str, described: "Credentials | ApiError") -> Any:
    if isinstance(described, ApiError):
        return build_result(shape, described, user=user, credential_infos=())
    info = shape["credential_infos"]
    infos = tuple(
        info(mechanism=mechanism.code, iterations=credential.iterations)
        for mechanism, credential in described.items()
    )
    return build_result(shape, None, user=user, credential_infos=infos)
