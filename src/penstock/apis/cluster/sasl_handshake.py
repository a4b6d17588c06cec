"""SaslHandshake (key 17), versions 0-1: the client names the mechanism of its login.

After version 0 the tokens come without a header, after version 1 in SaslAuthenticate (KIP-152). A
mechanism that is not enabled on the listener is answered with those that are; then the connection
is closed.
"""

from typing import TYPE_CHECKING, Any

from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import response_shape
from penstock.apis.sasl_gate import refuse_login
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import decode_request
from penstock.security.sasl.login import HandshakeResult

if TYPE_CHECKING:
    from penstock.apis.services import Services

_RAW_VERSION = 0
_MAX_SHOWN = 100


def answer(request: Request, services: "Services") -> None:
    message = decode_request(request.key, request.version, request.message, request.budget)
    request.message = None  # a view, and a failure is answered later
    login = request.in_flight.login
    if login is None:
        _reply(request, ErrorCode.ILLEGAL_SASL_STATE)
        return
    result = login.begin(
        message.mechanism,
        is_raw=request.version == _RAW_VERSION,
        now_ms=services.timers.now_ms(),
    )
    if result is HandshakeResult.BEGUN:
        _reply(request, ErrorCode.NONE, login.listener.mechanisms)
    elif result is HandshakeResult.ILLEGAL:
        _reply(request, ErrorCode.ILLEGAL_SASL_STATE)
    else:
        offered = login.offered
        refuse_login(
            request.in_flight,
            f"mechanism {message.mechanism[:_MAX_SHOWN]!r} is not among {', '.join(offered)}",
            services.timers,
            lambda: _reply(request, ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered),
        )


API = Api(key=ApiKey.SASL_HANDSHAKE, versions=range(2), direct=answer)


def _reply(request: Request, error: ErrorCode, mechanisms: Any = ()) -> None:
    shape = response_shape(request.key, request.version)
    request.reply(shape(error_code=error, mechanisms=tuple(mechanisms)))
