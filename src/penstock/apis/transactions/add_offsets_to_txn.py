"""AddOffsetsToTxn (key 25), versions 0-4: adds a group's offsets to a transaction.

It adds the group's partition of `__consumer_offsets`; the offsets themselves come with
TxnOffsetCommit. Version 2 added PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE. Clients with transactions
v2 do not send this request.
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_group, allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.apis.transactions.producer_fenced import code_for
from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.ADD_OFFSETS_TO_TXN
FIRST_WITH_FENCED = 2
ADD_PARTITIONS_VERSION = (
    3  # the last for producers: those with transactions v2 do not send this request
)


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    message = request.message
    if not allows_transaction(request, services, AclOperation.WRITE, message.transactional_id):
        return _build(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not allows_group(request, services, AclOperation.READ, message.group_id):
        return _build(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _add(request, services)


async def _add(request: Request, services: "Services") -> Any:
    """Ensures that the topic exists: a client without group membership never looked it up."""
    code = await services.groups.ensure_topic()
    if code is not ErrorCode.NONE:
        return _build(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    message = request.message
    partition = services.groups.partition_of(message.group_id)
    code = await services.transactions.add_partitions(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        [TopicPartition(OFFSETS_TOPIC, partition)],
        version=ADD_PARTITIONS_VERSION,
        connection=request.in_flight.connection,
    )
    return _build(request, code)


def _build(request: Request, code: ErrorCode) -> Any:
    return response_shape(KEY, request.version)(
        throttle_time=timedelta(),
        error_code=code_for(request, code, FIRST_WITH_FENCED),
    )


API = Api(key=KEY, versions=range(5), answer=answer)
