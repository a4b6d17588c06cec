"""A login by OAUTHBEARER (RFC 7628): one message with a token, which says who and until when."""

import re
import time
from collections.abc import Callable

from penstock.security.sasl.bearer_tokens import TokenRefused, TokenVerifier, UnknownTokenKey
from penstock.security.sasl.mechanism import LoginRefused, LoginStep

_MAX_MESSAGE_BYTES = 65_536
_HEADER = re.compile(r"n,(?:a=([^,]+))?,")
_CREDENTIAL = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/-]+=*)")
_SEPARATOR = "\x01"


class BearerExchange:
    __slots__ = ("_on_unknown_key", "_verifier")

    def __init__(self, verifier: TokenVerifier, on_unknown_key: Callable[[], None]) -> None:
        self._verifier = verifier
        self._on_unknown_key = on_unknown_key

    def evaluate(self, token: bytes) -> LoginStep:
        authorization_id, bearer_token = _read(token)
        try:
            verified = self._verifier.verify(bearer_token)
        except UnknownTokenKey as unknown:
            self._on_unknown_key()
            raise LoginRefused(f"OAUTHBEARER: {unknown}") from None
        except TokenRefused as refused:
            raise LoginRefused(f"OAUTHBEARER: {refused}") from None
        if authorization_id not in (None, verified.user):
            raise LoginRefused("the authorization id is not the user of the token")
        left_ms = int((verified.expires_s - time.time()) * 1000)
        # Within the clock skew that is forgiven a token may just have expired.
        return LoginStep(b"", verified.user, max(left_ms, 1))


def _read(message: bytes) -> tuple[str | None, str]:
    """The id to act as, and the token. Split, because a pattern for the whole could be slow."""
    if len(message) > _MAX_MESSAGE_BYTES:
        raise LoginRefused(f"a message of {len(message)} bytes; at most {_MAX_MESSAGE_BYTES}")
    head, *pairs = message.decode("ascii", "replace").split(_SEPARATOR)
    header = _HEADER.fullmatch(head)
    values = [pair[len("auth=") :] for pair in pairs if pair.startswith("auth=")]
    credential = _CREDENTIAL.fullmatch(values[0]) if len(values) == 1 else None
    if header is None or credential is None or pairs[-2:] != ["", ""]:
        raise LoginRefused("not a message of OAUTHBEARER")
    return header[1], credential[1]
