"""An issuer's keys: fetched from a file or from https, without redirection, and again later."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.server.jwks import JwksUnavailable, fetch_keys


def write_keys(path: Path, kid: str) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "alg": "RS256"}
    path.write_text(json.dumps({"keys": [public]}))
    return path.as_uri()


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    [key] = fetch_keys(write_keys(tmp_path / "keys", "one"))
    assert (key.key_id, key.algorithm_name) == ("one", "RS256")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "JSONDecodeError"),
        ("[1, 2]", "not a JSON Web Key Set"),
        ('{"keys": []}', "no key for signatures"),
        (" " * (1024 * 1024 + 1), "more than 1048576 bytes"),
    ],
)
def test_a_document_without_keys_is_refused(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(JwksUnavailable, match=why):
        fetch_keys(file.as_uri())


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/keys", "ftp://127.0.0.1/keys", "keys.json", "data:,{}"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(JwksUnavailable, match="https or file is needed"):
        fetch_keys(url)


def test_an_issuer_that_does_not_answer_is_named() -> None:
    with pytest.raises(JwksUnavailable, match=r"https://127\.0\.0\.1:1/keys: .*refused"):
        fetch_keys("https://127.0.0.1:1/keys")
