"""SaslAuthenticate (key 36), versions 0-2: a token of the login that SaslHandshake has begun.

From version 1 on the last response says how long the session lasts; the client logs in again before
it ends (KIP-368). A failure is answered after connection.failed.authentication.delay.ms, with a
text that does not tell whether the user exists; then the connection is closed.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.apis.sasl_gate import refuse_login
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import decode_request
from penstock.security.sasl.mechanism import LoginRefused

if TYPE_CHECKING:
    from penstock.apis.services import Services

_REFUSED = "Authentication failed: wrong credentials, or a malformed token"


def answer(request: Request, services: "Services") -> None:
    message = decode_request(request.key, request.version, request.message, request.budget)
    request.message = None  # a view, and a failure is answered later
    login = request.in_flight.login
    if login is None or not login.is_exchanging:
        _refuse(
            request,
            ErrorCode.ILLEGAL_SASL_STATE,
            "no login was begun on this connection: SaslHandshake comes first, on a SASL listener",
        )
        return
    try:
        result = login.evaluate(bytes(message.auth_bytes), services.timers.now_ms())
    except LoginRefused as refused:
        refuse_login(
            request.in_flight,
            str(refused),
            services.timers,
            lambda: _refuse(request, ErrorCode.SASL_AUTHENTICATION_FAILED, _REFUSED),
        )
        return
    if result.principal is not None:
        request.in_flight.complete_login(result.principal)
    _reply(request, ErrorCode.NONE, None, result.token, result.session_ms)


API = Api(key=ApiKey.SASL_AUTHENTICATE, versions=range(3), direct=answer)


def _refuse(request: Request, error: ErrorCode, text: str) -> None:
    _reply(request, error, text, b"", 0)


def _reply(
    request: Request, error: ErrorCode, text: str | None, token: bytes, session_ms: int
) -> None:
    shape = response_shape(request.key, request.version)
    request.reply(
        shape(
            error_code=error,
            error_message=text,
            auth_bytes=token,
            session_lifetime=timedelta(milliseconds=session_ms),
        )
    )
