"""Where a client's bearer tokens come from: an identity provider, a function, or itself.

It keeps a token until shortly before it expires. No token and no secret is in an error.
"""

import asyncio
import json
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlencode

from penstock.client.errors import AuthenticationFailed
from penstock.client.security.config import CallbackLogin, OidcLogin, UnsecuredLogin
from penstock.client.security.key_stores import read_trusted

_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 1024 * 1024
_RENEW_AT = 0.8  # of its lifetime


class BearerToken(NamedTuple):
    value: str
    expires_at_s: float  # since 1970

    def __repr__(self) -> str:
        return f"BearerToken(expires_at_s={self.expires_at_s})"


class BearerTokens:
    """Owned by one event loop."""

    __slots__ = ("_lock", "_login", "_renew_at_s", "_token")

    def __init__(self, login: OidcLogin | UnsecuredLogin | CallbackLogin) -> None:
        self._login = login
        self._token: BearerToken | None = None
        self._renew_at_s = 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> str:
        """A token that has not expired; AuthenticationFailed if there is none."""
        async with self._lock:
            now_s = time.time()
            if self._token is None or now_s >= self._renew_at_s:
                self._token = await asyncio.to_thread(fetch_token, self._login, now_s)
                self._renew_at_s = now_s + (self._token.expires_at_s - now_s) * _RENEW_AT
            return self._token.value


def fetch_token(login: OidcLogin | UnsecuredLogin | CallbackLogin, now_s: float) -> BearerToken:
    """Blocks until the provider answers."""
    if isinstance(login, OidcLogin):
        token = _ask_provider(login, now_s)
    elif isinstance(login, UnsecuredLogin):
        token = make_unsecured_token(login, now_s)
    else:
        token = _call_back(login)
    if not token.value.isascii() or not token.value.isprintable() or " " in token.value:
        raise AuthenticationFailed("OAUTHBEARER: the token is empty or has special characters")
    if token.expires_at_s <= now_s:
        raise AuthenticationFailed("OAUTHBEARER: the new token has expired already")
    return token


def _call_back(login: CallbackLogin) -> BearerToken:
    try:
        value, expires_at_s, *_ = login.callback(login.config)
        return BearerToken(str(value), float(expires_at_s))
    except Exception as error:  # the program's own function: its error says why
        raise AuthenticationFailed(f"oauth_cb gave no token: {type(error).__name__}") from error


def make_unsecured_token(login: UnsecuredLogin, now_s: float) -> BearerToken:
    """As librdkafka's: a JWT with the algorithm `none`."""
    expires_at_s = now_s + login.lifetime_s
    claims: dict[str, Any] = {"sub": login.principal, "iat": now_s, "exp": expires_at_s}
    if login.scopes:
        claims["scope"] = list(login.scopes)
    return BearerToken(f"{_part({'alg': 'none'})}.{_part(claims)}.", expires_at_s)


def _part(document: dict[str, Any]) -> str:
    encoded = json.dumps(document, separators=(",", ":")).encode()
    return urlsafe_b64encode(encoded).rstrip(b"=").decode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The secret goes to the configured URL and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _ask_provider(login: OidcLogin, now_s: float) -> BearerToken:
    """RFC 6749, section 4.4."""
    pairs = {"grant_type": "client_credentials", **({"scope": login.scope} if login.scope else {})}
    user = f"{login.client_id}:{login.client_secret}"  # as Kafka's, not percent-encoded
    request = urllib.request.Request(  # noqa: S310 # https, or http on this machine: checked
        login.token_endpoint,
        data=urlencode(pairs).encode(),
        headers={
            "Authorization": "Basic " + b64encode(user.encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    opener = urllib.request.build_opener(
        _NoRedirects, urllib.request.HTTPSHandler(context=_context(login))
    )
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            content = response.read(_MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            raise _failed(login, f"answers {error.code} {error.reason}") from None
    except HTTPException as error:  # its text is what came in place of an answer
        raise _failed(login, f"gives no answer of HTTP: {type(error).__name__}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise _failed(login, f"cannot be reached: {reason}") from None
    return _read_answer(login, content, now_s)


def _context(login: OidcLogin) -> ssl.SSLContext:
    trusted = None if login.trusted is None else read_trusted(login.trusted)
    return ssl.create_default_context(cadata=trusted)


def _read_answer(login: OidcLogin, content: bytes, now_s: float) -> BearerToken:
    try:
        answer = json.loads(content)
        return BearerToken(str(answer["access_token"]), now_s + float(answer["expires_in"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _failed(login, "answers without access_token and expires_in in JSON") from None


def _failed(login: OidcLogin, what: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"OAUTHBEARER: {login.token_endpoint} {what}")
