"""OAUTHBEARER on the server's side: which tokens let in whom, and for how long."""

import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from penstock.security.sasl.bearer import BearerExchange
from penstock.security.sasl.bearer_tokens import (
    BadKeySet,
    TokenRules,
    TokenVerifier,
    read_key_set,
)
from penstock.security.sasl.mechanism import LoginRefused

_ISSUER, _AUDIENCE = "https://issuer.example", "kafka"
_OURS = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_CURVE = ec.generate_private_key(ec.SECP256R1())


def key_set() -> dict[str, Any]:
    one = json.loads(RSAAlgorithm.to_jwk(_OURS.public_key()))
    two = json.loads(ECAlgorithm.to_jwk(_CURVE.public_key()))
    return {
        "keys": [
            {**one, "kid": "one", "alg": "RS256", "use": "sig"},
            {**two, "kid": "two", "alg": "ES256"},
        ]
    }


_KEYS = read_key_set(key_set())
_RULES = TokenRules(
    issuer=_ISSUER,
    audiences=(_AUDIENCE, "other"),
    algorithms=("RS256", "ES256"),
    user_claim="sub",
    clock_skew_s=30,
)


def claims(**changes: Any) -> dict[str, Any]:
    now_s = int(time.time())
    values = {"sub": "ada", "iss": _ISSUER, "aud": _AUDIENCE, "iat": now_s, "exp": now_s + 600}
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


def sign(
    payload: Mapping[str, Any], key: Any = _OURS, algorithm: str = "RS256", kid: str | None = "one"
) -> str:
    headers = {"kid": kid} if kid else None
    return jwt.encode(dict(payload), key, algorithm=algorithm, headers=headers)


def message(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def log_in(token_message: bytes, on_unknown_key: Any = lambda: None) -> tuple[str | None, int]:
    step = BearerExchange(TokenVerifier(_RULES, _KEYS), on_unknown_key).evaluate(token_message)
    assert step.left_ms is not None
    return step.user, step.left_ms


def test_a_token_names_its_user_until_it_expires() -> None:
    for token in (sign(claims()), sign(claims(), _CURVE, "ES256", "two"), sign(claims(), kid=None)):
        user, left_ms = log_in(message(token))
        assert user == "ada"
        assert 0 < left_ms <= 600_000
    assert log_in(message(sign(claims()), "n,a=ada,"))[0] == "ada"
    extended = message(sign(claims())).replace(b"\x01\x01", b"\x01traceId=1\x01\x01")
    assert log_in(extended)[0] == "ada"


@pytest.mark.parametrize(
    "token",
    [
        sign(claims(exp=int(time.time()) - 3600)),
        sign(claims(exp=None)),
        sign(claims(nbf=int(time.time()) + 3600)),
        sign(claims(iss="https://somebody")),
        sign(claims(iss=None)),
        sign(claims(aud="somebody")),
        sign(claims(aud=None)),
        sign(claims(sub=None)),
        sign(claims(sub="")),
        sign(claims(), _OTHER),
        sign(claims(), _OTHER, kid=None),
        sign(claims(), "a shared secret of 32 bytes or more", "HS256"),
        sign(claims(), None, "none"),
        sign(claims(), _OURS, "RS512"),
        "x" * 20_000,
        "a.b.c",
    ],
    ids=[
        "expired",
        "without end",
        "not valid yet",
        "another issuer",
        "no issuer",
        "another audience",
        "no audience",
        "no subject",
        "empty subject",
        "another's key",
        "another's key without a name",
        "shared secret",
        "not signed",
        "another algorithm",
        "too long",
        "no token",
    ],
)
def test_other_tokens_are_refused_and_not_shown(token: str) -> None:
    """CVE-2026-33557, CVE-2026-110985: no signature, another's, or one by a shared secret."""
    with pytest.raises(LoginRefused) as refused:
        log_in(message(token))
    assert token not in str(refused.value)


def test_a_token_whose_signature_is_cut_off_is_refused() -> None:
    head, _, _ = sign(claims()).rpartition(".")
    with pytest.raises(LoginRefused):
        log_in(message(f"{head}."))


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        b"\xff\xfe",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01\x01",
        message("a.b.c", "y,,"),
        message("a.b.c")[:-1],
        b"n,,\x01auth=Bearer a\x01auth=Bearer a\x01\x01",
        b"n,," + b"\x01auth=Bearer a" * 4_000,
        b"n,,\x01" * 40_000,
    ],
)
def test_malformed_messages_are_refused_at_once(spoilt: bytes) -> None:
    with pytest.raises(LoginRefused):
        log_in(spoilt)


def test_another_user_is_not_acted_as() -> None:
    with pytest.raises(LoginRefused, match="authorization id"):
        log_in(message(sign(claims()), "n,a=root,"))


def test_an_unknown_key_has_the_keys_fetched_again() -> None:
    fetches: list[bool] = []
    with pytest.raises(LoginRefused, match="no key of the issuer"):
        log_in(message(sign(claims(), _OTHER, kid="new")), lambda: fetches.append(True))
    assert fetches == [True]
    verifier = TokenVerifier(_RULES, _KEYS)
    new = json.loads(RSAAlgorithm.to_jwk(_OTHER.public_key()))
    verifier.replace_keys(read_key_set({"keys": [{**new, "kid": "new", "alg": "RS256"}]}))
    step = BearerExchange(verifier, lambda: None).evaluate(
        message(sign(claims(), _OTHER, kid="new"))
    )
    assert step.user == "ada"


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"keys": []}, {"keys": [1, {}]}, {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}],
)
def test_a_set_without_a_public_key_is_refused(document: object) -> None:
    with pytest.raises(BadKeySet):
        read_key_set(document)
