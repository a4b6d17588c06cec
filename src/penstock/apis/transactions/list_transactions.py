"""ListTransactions (key 66), versions 0-2: the transactional ids that this broker coordinates.

Version 1 added a filter on the duration (KIP-994), 2 a pattern for the id, in RE2's syntax and as a
full match (KIP-1152). Only ids that the caller may describe are returned.
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
MAX_ID_CHARACTERS = 32_767  # of a transactional id, which is the key of a record


def answer(request: Request, services: "Services") -> Any:
    message = request.message
    listed = services.transactions.list(
        ListTransactions(
            states=frozenset(message.state_filters),
            producer_ids=frozenset(message.producer_id_filters),
            min_duration_ms=getattr(message, "duration_filter", ANY_DURATION),
        )
    )
    try:
        matching = _filter(listed, getattr(message, "transactional_id_pattern", None))
    except InvalidPattern:
        matching = ListedTransactions(ErrorCode.INVALID_REGULAR_EXPRESSION)
    return _build(request, services, matching)


def _filter(listed: ListedTransactions, pattern: str | None) -> ListedTransactions:
    if not pattern:
        return listed
    ids = [transaction.transactional_id for transaction in listed.transactions]
    compiled = compile_pattern(
        pattern, letters=frozenset("".join(ids)), max_length=MAX_ID_CHARACTERS
    )
    matching = (
        transaction
        for transaction in listed.transactions
        if compiled.matches(transaction.transactional_id)
    )
    return listed._replace(transactions=tuple(matching))


def _build(request: Request, services: "Services", listed: ListedTransactions) -> Any:
    shape = response_shape(KEY, request.version)
    return shape(
        throttle_time=timedelta(),
        error_code=listed.code,
        unknown_state_filters=listed.unknown_states,
        transaction_states=tuple(
            shape["transaction_states"](
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state,
            )
            for transaction in listed.transactions
            if allows_transaction(
                request,
                services,
                AclOperation.DESCRIBE,
                transaction.transactional_id,
                shows=True,
            )
        ),
    )


API = Api(key=KEY, versions=range(3), answer=answer)
