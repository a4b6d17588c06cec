"""PLAIN (RFC 4616): the password itself, so only behind TLS. Users come from `sasl.jaas.config`.

Invariant: an unknown user takes the same comparison and the same answer as a wrong password.
"""

import hmac
import secrets
from collections.abc import Mapping

from penstock.security.sasl.mechanism import LoginRefused, LoginStep

_USER_OPTION = "user_"
_MAX_TOKEN_BYTES = 65_536


def find_plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """User name -> password, from the options `user_NAME="password"` of a login module."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in options.items()
        if name.startswith(_USER_OPTION) and name != _USER_OPTION
    }


class PlainExchange:
    __slots__ = ("_users",)

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> LoginStep:
        user, password = _read(token)
        expected = self._users.get(user)
        # Compared in either case, so that time does not tell which names exist.
        secret = secrets.token_bytes(16) if expected is None else expected.encode()
        is_right = hmac.compare_digest(password.encode(), secret)
        if expected is None or not is_right:
            raise LoginRefused("the password is wrong, or there is no such user")
        return LoginStep(b"", user)


def _read(token: bytes) -> tuple[str, str]:
    """The user and the password. An id to act as must be the user's own (CVE-2017-12610)."""
    if len(token) > _MAX_TOKEN_BYTES:
        raise LoginRefused(f"a PLAIN token of {len(token)} bytes; at most {_MAX_TOKEN_BYTES}")
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginRefused("a PLAIN token that is not UTF-8") from None
    if len(parts) != 3:
        raise LoginRefused(f"a PLAIN token of {len(parts)} parts, not of 3")
    authorization_id, user, password = parts
    if not user or not password:
        raise LoginRefused("a PLAIN token without a user or without a password")
    if authorization_id and authorization_id != user:
        raise LoginRefused("the authorization id is not the user name")
    return user, password
