"""ListTransactions (key 66), versions 0-2: the transactional ids that this broker coordinates.

Version 1 added a filter on how long they have been open (KIP-994), 2 a pattern of the ids, in RE2's
syntax and as a whole match (KIP-1152). Only those that the caller may describe are told.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_transaction
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.coordinators.transaction.requests import ListedTransactions, ListTransactions
from penstock.model.errors import ErrorCode
from penstock.model.name_pattern import InvalidPattern, compile_pattern
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

KEY = ApiKey.LIST_TRANSACTIONS
ANY_DURATION = -1
MAX_NAME_LETTERS = 32_767  # of a transactional id: it is the key of a record


def answer(request: Request, services: "Services") -> Any:
    message = request.message
    found = services.transactions.list(
        ListTransactions(
            states=frozenset(message.state_filters),
            producer_ids=frozenset(message.producer_id_filters),
            min_duration_ms=getattr(message, "duration_filter", ANY_DURATION),
        )
    )
    try:
        wanted = _keep_matching(found, getattr(message, "transactional_id_pattern", None))
    except InvalidPattern:
        wanted = ListedTransactions(ErrorCode.INVALID_REGULAR_EXPRESSION)
    return _build(request, services, wanted)


def _keep_matching(found: ListedTransactions, pattern: str | None) -> ListedTransactions:
    if not pattern:
        return found
    names = [each.transactional_id for each in found.transactions]
    compiled = compile_pattern(
        pattern, letters=frozenset("".join(names)), max_length=MAX_NAME_LETTERS
    )
    kept = (each for each in found.transactions if compiled.matches(each.transactional_id))
    return found._replace(transactions=tuple(kept))


def _build(request: Request, services: "Services", found: ListedTransactions) -> Any:
    shape = response_shape(KEY, request.version)
    return shape(
        throttle_time=timedelta(),
        error_code=found.code,
        unknown_state_filters=found.unknown_states,
        transaction_states=tuple(
            shape["transaction_states"](
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state,
            )
            for each in found.transactions
            if allows_transaction(request, services, AclOperation.DESCRIBE, each.transactional_id)
        ),
    )


API = Api(key=KEY, versions=range(3), answer=answer, max_frame_bytes=1 << 20)
