"""Verifies the bearer tokens of OAUTHBEARER: signature, issuer, audience and times, with PyJWT.

The keys are an issuer's JSON Web Key Set; `jwks` in server fetches it. Invariant: nothing is
accepted unless its signature was made by one of these keys with an asymmetric algorithm that is
allowed: not `none`, and no shared secret (CVE-2026-33557, CVE-2026-110985). No error shows a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
MAX_TOKEN_BYTES = 16_384
_MAX_KEYS = 1_000
_MAX_USER = 1_000


class TokenRefused(Exception):
    """For the log: not the token."""


class UnknownTokenKey(TokenRefused):
    """The issuer may have new keys."""


class BadKeySet(ValueError):
    """The document has no key that could verify a token."""


class VerifiedToken(NamedTuple):
    user: str
    expires_s: float  # since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    user_claim: str
    clock_skew_s: int


class TokenVerifier:
    """Owned by the event loop."""

    __slots__ = ("_keys", "_rules")

    def __init__(self, rules: TokenRules, keys: Sequence[Any]) -> None:
        self._rules = rules
        self._keys = tuple(keys)

    def replace_keys(self, keys: Sequence[Any]) -> None:
        self._keys = tuple(keys)

    def verify(self, token: str) -> VerifiedToken:
        """Or TokenRefused."""
        import jwt

        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefused(f"a token of {len(token)} bytes; at most {MAX_TOKEN_BYTES}")
        rules = self._rules
        try:
            key = self._find_key(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                issuer=rules.issuer,
                audience=list(rules.audiences),
                leeway=rules.clock_skew_s,
                options={"require": ["exp", "iss", "aud", rules.user_claim]},
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(f"the token is refused: {type(error).__name__}") from None
        user = claims[rules.user_claim]
        if not isinstance(user, str) or not 0 < len(user) <= _MAX_USER:
            raise TokenRefused(f"its claim {rules.user_claim} is not a name")
        return VerifiedToken(user, float(claims["exp"]))

    def _find_key(self, header: dict[str, Any]) -> Any:
        """The token names its key and its algorithm; both have to be ours."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._rules.algorithms:
            raise TokenRefused("its algorithm is not allowed")
        for key in self._keys:
            if key.algorithm_name == algorithm and (key_id is None or key.key_id == key_id):
                return key
        raise UnknownTokenKey("no key of the issuer has its id and algorithm")


def read_key_set(document: Any) -> list[Any]:
    """The keys of a JSON Web Key Set; BadKeySet if none can be used."""
    try:
        import jwt
    except ModuleNotFoundError:
        raise BadKeySet("OAUTHBEARER needs pip install 'penstock[security]'") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise BadKeySet("it is not a JSON Web Key Set")
    keys = []
    for entry in document["keys"][:_MAX_KEYS]:
        try:
            key = jwt.PyJWK.from_dict(entry)
        except (jwt.PyJWTError, TypeError, AttributeError, ValueError):
            continue  # of a kind that is unknown here; others may do
        if key.algorithm_name in ASYMMETRIC and key.public_key_use in (None, "sig"):
            keys.append(key)
    if not keys:
        raise BadKeySet("it has no key for signatures of an asymmetric algorithm")
    return keys
