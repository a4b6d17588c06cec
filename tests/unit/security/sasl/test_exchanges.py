"""PLAIN and SCRAM on the server's side: who gets in, and what the others learn."""

import ast
import hashlib
import hmac
from base64 import b64encode
from pathlib import Path

import pytest
from tests.unit.security.sasl.logins import PASSWORDS, make_scram_users, plain_token

import penstock.protocol.scram
import penstock.security.sasl.plain
from penstock.protocol.scram import (
    ClientFirst,
    ScramClient,
    ScramMechanism,
    ServerFirst,
    make_client_first,
    parse_server_first,
)
from penstock.security.sasl.mechanism import LoginRefused
from penstock.security.sasl.plain import PlainExchange, find_plain_users
from penstock.security.sasl.scram import ScramExchange

_PASSWORD = PASSWORDS["alice"]


def test_plain_names_the_user_of_the_right_password() -> None:
    for authorization_id in ("", "alice"):
        step = PlainExchange(PASSWORDS).evaluate(plain_token("alice", _PASSWORD, authorization_id))
        assert (step.token, step.user) == (b"", "alice")


def test_plain_tells_a_wrong_password_and_an_unknown_user_alike() -> None:
    reasons = set()
    for token in (plain_token("alice", "no"), plain_token("carol", "no"), plain_token("bob", "")):
        with pytest.raises(LoginRefused) as refused:
            PlainExchange(PASSWORDS).evaluate(token)
        reasons.add(str(refused.value))
    assert "the password is wrong, or there is no such user" in reasons
    assert len(reasons) == 2  # and the one without a password


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"\0alice",
        f"\0alice\0{_PASSWORD}\0".encode(),
        b"\0\0secret",
        b"\xff\0alice\0secret",
        f"bob\0alice\0{_PASSWORD}".encode(),  # CVE-2017-12610: alice would act as bob
        f"\0alice\0{'x' * 70_000}".encode(),
    ],
)
def test_plain_refuses_malformed_tokens_and_other_ids(token: bytes) -> None:
    with pytest.raises(LoginRefused) as refused:
        PlainExchange(PASSWORDS).evaluate(token)
    assert _PASSWORD not in str(refused.value)


def test_plain_users_are_the_options_of_the_login_module() -> None:
    options = {"username": "broker", "password": "p", "user_alice": "a", "user_": "nobody"}
    assert find_plain_users(options) == {"alice": "a"}


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_names_the_user_and_proves_that_the_server_knows_the_password(
    mechanism: ScramMechanism,
) -> None:
    exchange = ScramExchange(mechanism, make_scram_users())
    client = ScramClient(mechanism, "alice", _PASSWORD)
    challenge = exchange.evaluate(client.first())
    assert challenge.user is None
    done = exchange.evaluate(client.final(challenge.token))
    assert done.user == "alice"
    client.verify(done.token)


@pytest.mark.parametrize(("user", "password"), [("alice", "no"), ("carol", "no")])
def test_scram_tells_a_wrong_password_and_an_unknown_user_alike(user: str, password: str) -> None:
    mechanism = ScramMechanism.SHA_256
    exchange = ScramExchange(mechanism, make_scram_users())
    client = ScramClient(mechanism, user, password)
    challenge = exchange.evaluate(client.first()).token
    assert len(parse_server_first(challenge).salt) == 24
    with pytest.raises(LoginRefused, match="the password is wrong, or there is no such user"):
        exchange.evaluate(client.final(challenge))


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    users = make_scram_users()

    def salt_of(user: str) -> bytes:
        exchange = ScramExchange(ScramMechanism.SHA_512, users)
        first = ScramClient(ScramMechanism.SHA_512, user, "x").first()
        return parse_server_first(exchange.evaluate(first).token).salt

    assert salt_of("carol") == salt_of("carol")
    assert salt_of("carol") != salt_of("dave")


def test_a_credential_of_one_mechanism_does_not_open_the_other() -> None:
    users = make_scram_users(mechanisms=(ScramMechanism.SHA_256,))
    exchange = ScramExchange(ScramMechanism.SHA_512, users)
    client = ScramClient(ScramMechanism.SHA_512, "alice", _PASSWORD)
    challenge = exchange.evaluate(client.first()).token
    with pytest.raises(LoginRefused):
        exchange.evaluate(client.final(challenge))


def test_scram_refuses_another_id_to_act_as() -> None:
    """CVE-2017-12610."""
    first = make_client_first("alice", nonce="n" * 20, authzid="bob").encode()
    with pytest.raises(LoginRefused, match="authorization id"):
        ScramExchange(ScramMechanism.SHA_256, make_scram_users()).evaluate(first)


def test_scram_refuses_a_nonce_that_only_ends_like_its_own() -> None:
    """CVE-2024-56128: what one login sent must not open another."""
    exchange = ScramExchange(ScramMechanism.SHA_256, make_scram_users())
    client = ScramClient(ScramMechanism.SHA_256, "alice", _PASSWORD, nonce="abcdef")
    final = client.final(exchange.evaluate(client.first()).token)
    with pytest.raises(LoginRefused, match="nonce"):
        exchange.evaluate(final.replace(b"r=abcdef", b"r=xabcdef"))


def test_scram_lets_old_librdkafka_repeat_its_own_nonce() -> None:
    exchange = ScramExchange(ScramMechanism.SHA_256, make_scram_users())
    nonce = "of-the-client"
    first = make_client_first("alice", nonce=nonce)
    challenge = parse_server_first(exchange.evaluate(first.encode()).token)
    final = _final_with_nonce(first, challenge, nonce + challenge.nonce)
    assert exchange.evaluate(final).user == "alice"


def _final_with_nonce(first: ClientFirst, challenge: ServerFirst, nonce: str) -> bytes:
    """client-final of a client that knows the password and sends this nonce."""
    salted = hashlib.pbkdf2_hmac("sha256", _PASSWORD.encode(), challenge.salt, challenge.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c=biws,r={nonce}"
    signed = f"{first.bare},{challenge.text},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{bare},p={b64encode(proof).decode()}".encode()


def test_scram_refuses_a_final_message_of_another_login() -> None:
    users = make_scram_users()
    client = ScramClient(ScramMechanism.SHA_256, "alice", _PASSWORD, nonce="abcdef")
    earlier = ScramExchange(ScramMechanism.SHA_256, users)
    final = client.final(earlier.evaluate(client.first()).token)
    later = ScramExchange(ScramMechanism.SHA_256, users)
    later.evaluate(client.first())
    with pytest.raises(LoginRefused, match="nonce"):
        later.evaluate(final)


def test_scram_refuses_delegation_tokens() -> None:
    extensions = {"tokenauth": "true"}
    first = make_client_first("alice", nonce="n" * 20, extensions=extensions).encode()
    with pytest.raises(LoginRefused, match="delegation tokens"):
        ScramExchange(ScramMechanism.SHA_256, make_scram_users()).evaluate(first)


@pytest.mark.parametrize("module", [penstock.protocol.scram, penstock.security.sasl.plain])
def test_no_secret_is_compared_with_an_operator(module: object) -> None:
    """CVE-2021-38153: only compare_digest takes the same time for every wrong value."""
    secrets = {"password", "secret", "expected", "proof", "stored_key", "server_key", "signature"}
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text())
    for compare in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
        if not any(isinstance(operator, ast.Eq | ast.NotEq) for operator in compare.ops):
            continue
        sides = [compare.left, *compare.comparators]
        names = {side.id for side in sides if isinstance(side, ast.Name)}
        names |= {side.attr for side in sides if isinstance(side, ast.Attribute)}
        assert not names & secrets, ast.unparse(compare)
