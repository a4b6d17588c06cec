"""ListTransactions (key 66), versions 0-1: the transactional ids that this broker coordinates.

Version 1 added a filter on how long they have been open (KIP-994). Only those that the caller may
describe are told.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.handlers.access import allows_transaction
from penstock.handlers.api import Api, Request
from penstock.handlers.shapes import response_shape
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import wire_error
from penstock.security.authorizer import Operation
from penstock.transactions.requests import ListTransactions

if TYPE_CHECKING:
    from penstock.handlers.services import Services

KEY = ApiKey.LIST_TRANSACTIONS
ANY_DURATION = -1


def answer(request: Request, services: "Services") -> Any:
    message = request.message
    found = services.transactions.list(
        ListTransactions(
            states=frozenset(message.state_filters),
            producer_ids=frozenset(message.producer_id_filters),
            min_duration_ms=getattr(message, "duration_filter", ANY_DURATION),
        )
    )
    shape = response_shape(KEY, request.version)
    return shape(
        throttle_time=timedelta(),
        error_code=wire_error(found.code),
        unknown_state_filters=found.unknown_states,
        transaction_states=tuple(
            shape["transaction_states"](
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state,
            )
            for each in found.transactions
            if allows_transaction(request, services, Operation.DESCRIBE, each.transactional_id)
        ),
    )


API = Api(key=KEY, versions=range(2), answer=answer, max_frame_bytes=1 << 20)
