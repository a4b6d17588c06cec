"""PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH for request versions before it.

KIP-588 added the code to each request in a version of its own.
"""

from penstock.apis.api import Request
from penstock.model.errors import ErrorCode


def code_for(request: Request, code: ErrorCode, first_with_fenced: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and request.version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
