"""EndTxn (key 26), versions 0-5: commits or aborts a producer's transaction.

Version 2 added PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE, 5 transactions v2: with each transaction
the producer gets a new epoch, or a new id (KIP-890).
"""

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.apis.transactions.producer_fenced import code_for
from penstock.coordinators.transaction.requests import EndTxnReply
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.END_TXN
FIRST_WITH_FENCED = 2


def answer(request: Request, services: "Services") -> Any | Coroutine[Any, Any, Any]:
    transactional_id = request.message.transactional_id
    if not allows_transaction(request, services, AclOperation.WRITE, transactional_id):
        return _build(request, EndTxnReply(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    return _end(request, services)


async def _end(request: Request, services: "Services") -> Any:
    message = request.message
    reply = await services.transactions.end(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        commit=message.committed,
        version=request.version,
        connection=request.in_flight.connection,
    )
    return _build(request, reply)


def _build(request: Request, reply: EndTxnReply) -> Any:
    return response_shape(KEY, request.version)(
        throttle_time=timedelta(),
        error_code=code_for(request, reply.code, FIRST_WITH_FENCED),
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
    )


API = Api(key=KEY, versions=range(6), answer=answer)
