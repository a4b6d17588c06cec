"""Makes a client's connections secure: its TLS context, and the SASL login of each connection.

Invariant: a login that is configured and does not succeed raises; no request is sent after it.
"""

import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.client.call import Call
from penstock.client.errors import AuthenticationFailed
from penstock.client.security.config import ClientSasl, ClientSecurity
from penstock.client.security.oauth_tokens import BearerTokens
from penstock.client.security.sasl_tokens import SaslTokens, sasl_tokens
from penstock.client.security.tls_context import TlsContexts
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey

SendCall = Callable[[Call], Awaitable[Any]]


class Authenticator:
    """Of one client, for all its connections. Owned by the event loop that uses it first."""

    __slots__ = ("_contexts", "_sasl", "_tokens")

    def __init__(self, security: ClientSecurity) -> None:
        self._contexts = None if security.tls is None else TlsContexts(security.tls)
        self._sasl = security.sasl
        oauth = None if security.sasl is None else security.sasl.oauth
        self._tokens = None if oauth is None else BearerTokens(oauth)

    @property
    def uses_sasl(self) -> bool:
        return self._sasl is not None

    def tls_context(self) -> ssl.SSLContext | None:
        """For a new connection; None: plaintext is configured."""
        return None if self._contexts is None else self._contexts.get()

    async def log_in(self, send: SendCall) -> int:
        """Log in over a connection, or again over one that was logged in before. Returns after how
        many milliseconds the broker wants the next login; 0: never."""
        assert self._sasl is not None
        token = None if self._tokens is None else await self._tokens.get()
        await _agree_on_mechanism(self._sasl, send)
        return await _exchange_tokens(sasl_tokens(self._sasl, token), send)


async def _agree_on_mechanism(sasl: ClientSasl, send: SendCall) -> None:
    handshake = Call(ApiKey.SASL_HANDSHAKE, range(1, 2), {"mechanism": sasl.mechanism})
    answer = await send(handshake)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"the broker does not accept {sasl.mechanism} on this listener; it accepts: {offered}"
        )
    if answer.error_code != ErrorCode.NONE:
        raise AuthenticationFailed(
            f"the broker refuses a SASL login on this listener ({answer.error_code.name})"
        )


async def _exchange_tokens(tokens: SaslTokens, send: SendCall) -> int:
    """Ends when the client is satisfied; an unsatisfied broker answers with an error."""
    token = next(tokens)
    while True:
        answer = await send(Call(ApiKey.SASL_AUTHENTICATE, range(3), {"auth_bytes": token}))
        if answer.error_code != ErrorCode.NONE:
            code: ErrorCode = answer.error_code
            reason = answer.error_message or code.message or code.name
            raise AuthenticationFailed(f"the broker refuses the login: {reason} ({code.name})")
        try:
            token = tokens.send(bytes(answer.auth_bytes))
        except StopIteration:
            return _lifetime_ms(answer)


def _lifetime_ms(answer: Any) -> int:
    lifetime = getattr(answer, "session_lifetime", None)
    return 0 if lifetime is None else max(0, round(lifetime.total_seconds() * 1000))
