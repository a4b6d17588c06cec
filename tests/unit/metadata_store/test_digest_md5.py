"""DIGEST-MD5: the example of RFC 2831, and servers that are not to be trusted."""

import pytest

from penstock.metadata_store.errors import ZooKeeperLoginFailed
from penstock.metadata_store.zookeeper.digest_md5 import DigestExchange, check_proof, respond

_CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)


def _rfc_example() -> DigestExchange:
    return respond(
        _CHALLENGE,
        username="chris",
        password="secret",
        client_nonce="OA6MHXh6VqTrRk",
        service="imap/elwood.innosoft.com",
    )


def test_response_is_that_of_the_rfc() -> None:
    fields = _rfc_example().response.split(b",")
    assert b"response=d388dad90d4bbd760a152321f2143af7" in fields
    assert b'username="chris"' in fields
    assert b'digest-uri="imap/elwood.innosoft.com"' in fields


def test_server_that_knows_the_password_is_believed() -> None:
    check_proof(_rfc_example(), b"rspauth=ea40f60335c427b5527b84dbabcdfffd")


@pytest.mark.parametrize(
    "answer", [b"", b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"rspauth=", b"\xff\xfe=,="]
)
def test_server_that_does_not_know_the_password_is_not_believed(answer: bytes) -> None:
    with pytest.raises(ZooKeeperLoginFailed, match="may not be your ZooKeeper"):
        check_proof(_rfc_example(), answer)


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "none of DIGEST-MD5"),
        (b"nonsense", "none of DIGEST-MD5"),
        (b'realm="r",algorithm=md5-sess', "none of DIGEST-MD5"),
        (b'nonce="n",algorithm=md5', "none of DIGEST-MD5"),
        (b'nonce="n",algorithm=md5-sess,qop="auth-conf"', "use TLS in its place"),
    ],
)
def test_other_challenges_are_refused(challenge: bytes, why: str) -> None:
    with pytest.raises(ZooKeeperLoginFailed, match=why):
        respond(challenge, username="u", password="p")


def test_every_response_has_a_nonce_of_its_own() -> None:
    responses = {respond(_CHALLENGE, username="u", password="p").response for _ in range(10)}
    assert len(responses) == 10
