"""SCRAM against the vector of RFC 7677, `scramp` as the other side, and bad input."""

from base64 import b64decode, b64encode

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.protocol.scram import (
    MAX_ITERATIONS,
    MAX_MESSAGE_BYTES,
    MIN_ITERATIONS,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramMechanism,
    ScramRefused,
    ScramServer,
    credential_of_salted,
    escape_name,
    fake_credential,
    make_client_first,
    make_credential,
    parse_client_final,
    parse_client_first,
    parse_server_first,
    salted_password,
    unescape_name,
)

# The exchange of RFC 7677, section 3.
NAME, PASSWORD = "user", "pencil"
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

MECHANISMS = list(ScramMechanism)
names = st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text and _is_utf8(text))


def test_client_speaks_the_exchange_of_the_rfc() -> None:
    client = ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD, nonce=CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    assert client.final(SERVER_FIRST) == CLIENT_FINAL
    client.verify(SERVER_FINAL)


def test_server_speaks_the_exchange_of_the_rfc() -> None:
    server = ScramServer(ScramMechanism.SHA_256, nonce=SERVER_NONCE)
    assert server.receive(CLIENT_FIRST).name == NAME
    assert server.challenge(_credential(salt=SALT)) == SERVER_FIRST
    assert server.verify(CLIENT_FINAL) == SERVER_FINAL


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "=2C", "jürgen", "日本"])
def test_our_client_logs_in_at_another_server(mechanism: ScramMechanism, name: str) -> None:
    theirs = scramp.ScramMechanism(mechanism.value)
    users = {name: theirs.make_auth_info("secret, =word")}
    server = theirs.make_server(lambda user: users[user])
    client = ScramClient(mechanism, name, "secret, =word")
    server.set_client_first(client.first().decode())
    server.set_client_final(client.final(server.get_server_first().encode()).decode())
    client.verify(server.get_server_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "=2C", "jürgen", "日本"])
def test_another_client_logs_in_at_our_server(mechanism: ScramMechanism, name: str) -> None:
    client = scramp.ScramClient([mechanism.value], name, "secret, =word")
    server = ScramServer(mechanism)
    assert server.receive(client.get_client_first().encode()).name == name
    credential = make_credential(mechanism, "secret, =word", iterations=5000)
    client.set_server_first(server.challenge(credential).decode())
    client.set_server_final(server.verify(client.get_client_final().encode()).decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_password_and_unknown_user_are_refused_alike(mechanism: ScramMechanism) -> None:
    real = make_credential(mechanism, "right")
    fake = fake_credential(mechanism, "nobody", secret=b"the server's own")
    texts = [str(_refusal(mechanism, credential)) for credential in (real, fake)]
    assert texts[0] == texts[1]
    assert (len(real.salt), real.iterations) == (len(fake.salt), fake.iterations)


def test_unknown_user_has_the_same_salt_each_time_and_another_in_another_cluster() -> None:
    def salt(name: str, secret: bytes) -> bytes:
        return fake_credential(ScramMechanism.SHA_256, name, secret=secret).salt

    assert salt("nobody", b"one") == salt("nobody", b"one")
    assert len({salt("nobody", b"one"), salt("nobody", b"two"), salt("other", b"one")}) == 3


def test_credential_of_a_salted_password_is_that_of_the_password() -> None:
    salted = salted_password(ScramMechanism.SHA_512, "secret", salt=SALT, iterations=4096)
    made = make_credential(ScramMechanism.SHA_512, "secret", salt=SALT)
    assert made == credential_of_salted(
        ScramMechanism.SHA_512, salted, salt=SALT, iterations=MIN_ITERATIONS
    )


def test_client_refuses_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD, nonce=CLIENT_NONCE)
    client.final(SERVER_FIRST)
    with pytest.raises(ScramRefused, match="did not prove"):
        client.verify(b"v=" + b64encode(bytes(32)))


def test_client_says_why_the_server_refuses() -> None:
    client = ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD, nonce=CLIENT_NONCE)
    client.final(SERVER_FIRST)
    with pytest.raises(ScramRefused, match="invalid-proof"):
        client.verify(b"e=invalid-proof")


def test_client_accepts_no_success_before_it_has_proved_itself() -> None:
    client = ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD, nonce=CLIENT_NONCE)
    with pytest.raises(ScramError, match="before"):
        client.verify(SERVER_FINAL)


@pytest.mark.parametrize("iterations", [1, MIN_ITERATIONS - 1, MAX_ITERATIONS + 1, 999_999_999])
def test_iterations_out_of_bounds_are_refused_on_both_sides(iterations: int) -> None:
    client = ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD, nonce=CLIENT_NONCE)
    with pytest.raises(ScramError, match=f"{iterations} iterations"):
        client.final(SERVER_FIRST.replace(b"4096", str(iterations).encode()))
    with pytest.raises(ScramError, match=f"{iterations} iterations"):
        make_credential(ScramMechanism.SHA_256, "secret", iterations=iterations)


@pytest.mark.parametrize("nonce", [CLIENT_NONCE, "x" + CLIENT_NONCE, SERVER_NONCE])
def test_client_refuses_a_nonce_that_does_not_extend_its_own(nonce: str) -> None:
    client = ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD, nonce=CLIENT_NONCE)
    with pytest.raises(ScramError, match="nonce"):
        client.final(f"r={nonce},s={b64encode(SALT).decode()},i=4096".encode())


@pytest.mark.parametrize("nonce", [SERVER_NONCE, CLIENT_NONCE, CLIENT_NONCE + "x" + SERVER_NONCE])
def test_server_refuses_a_nonce_that_only_ends_in_its_own(nonce: str) -> None:
    """CVE-2024-56128: the nonce must be equal."""
    server = _challenged_server()
    whole = (CLIENT_NONCE + SERVER_NONCE).encode()
    with pytest.raises(ScramError, match="nonce"):
        server.verify(CLIENT_FINAL.replace(whole, nonce.encode()))


def test_replayed_login_is_refused_by_another_and_by_the_same_exchange() -> None:
    server = _challenged_server()
    assert server.verify(CLIENT_FINAL) == SERVER_FINAL
    with pytest.raises(ScramError):
        server.verify(CLIENT_FINAL)
    fresh = ScramServer(ScramMechanism.SHA_256)
    fresh.receive(CLIENT_FIRST)
    fresh.challenge(_credential(salt=SALT))
    with pytest.raises(ScramError, match="nonce"):
        fresh.verify(CLIENT_FINAL)


def test_server_refuses_another_channel_binding() -> None:
    with pytest.raises(ScramError, match="binding"):
        _challenged_server().verify(CLIENT_FINAL.replace(b"biws", b64encode(b"y,,")))


def test_server_refuses_a_proof_of_another_length() -> None:
    with pytest.raises(ScramError, match="length"):
        _challenged_server().verify(CLIENT_FINAL.split(b",p=")[0] + b",p=AAAA")


def test_server_refuses_to_act_as_another_user() -> None:
    """CVE-2017-12610: the authorization id must be the user."""
    with pytest.raises(ScramError, match="authorization"):
        ScramServer(ScramMechanism.SHA_256).receive(b"n,a=admin,n=mallory,r=abc")
    same = ScramServer(ScramMechanism.SHA_256).receive(b"n,a=alice,n=alice,r=abc")
    assert (same.authzid, same.name) == ("alice", "alice")


def test_messages_out_of_order_are_refused() -> None:
    server = ScramServer(ScramMechanism.SHA_256)
    with pytest.raises(ScramError, match="before"):
        server.verify(CLIENT_FINAL)
    with pytest.raises(ScramError, match="no client-first"):
        server.challenge(_credential(salt=SALT))
    server.receive(CLIENT_FIRST)
    with pytest.raises(ScramError, match="twice"):
        server.receive(CLIENT_FIRST)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=us,er,r=abc",
        b"n,,n=user,r=a c",
        b"n,,n=user,r=abc,",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=user,r=abc,m=must",
        b"n,,n=user,r=abc,x=1,x=2",
        b"n,,n=\xff,r=abc",
        b"n,,n=user\x00,r=abc",
        b"n,,n=user,r=" + b"a" * MAX_MESSAGE_BYTES,
    ],
)
def test_malformed_client_first_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        parse_client_first(message)


def test_extensions_of_client_first_are_read() -> None:
    first = parse_client_first(b"n,,n=token,r=abc,tokenauth=true")
    assert first.extensions == {"tokenauth": "true"}


@given(message=st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(message: bytes) -> None:
    for parse in (parse_client_first, parse_server_first, parse_client_final):
        try:
            parsed: object = parse(message)
        except ScramError:
            continue
        assert parsed is not None


@given(name=names)
def test_names_survive_escaping(name: str) -> None:
    assert unescape_name(escape_name(name)) == name
    assert parse_client_first(make_client_first(name, nonce="abc").encode()).name == name


@given(name=names, password=st.text(max_size=30).filter(lambda text: _is_utf8(text)))
def test_client_and_server_agree(name: str, password: str) -> None:
    for mechanism in MECHANISMS[: scaled(test=1, verify=2, release=2)]:
        client, server = ScramClient(mechanism, name, password), ScramServer(mechanism)
        assert server.receive(client.first()).name == name
        proof = client.final(server.challenge(make_credential(mechanism, password)))
        client.verify(server.verify(proof))


def test_no_repr_and_no_error_shows_a_secret() -> None:
    credential = _credential(salt=SALT)
    shown = [
        repr(ScramClient(ScramMechanism.SHA_256, NAME, PASSWORD)),
        repr(credential),
        repr(parse_server_first(SERVER_FIRST)),
        repr(parse_client_final(CLIENT_FINAL)),
        str(_refusal(ScramMechanism.SHA_256, credential)),
    ]
    secrets = (PASSWORD, repr(credential.stored_key), repr(SALT), "dHzbZapW", "wrong-password")
    assert not [text for text in shown if any(secret in text for secret in secrets)]


def _credential(*, salt: bytes) -> ScramCredential:
    return make_credential(ScramMechanism.SHA_256, PASSWORD, salt=salt)


def _challenged_server() -> ScramServer:
    server = ScramServer(ScramMechanism.SHA_256, nonce=SERVER_NONCE)
    server.receive(CLIENT_FIRST)
    server.challenge(_credential(salt=SALT))
    return server


def _refusal(mechanism: ScramMechanism, credential: ScramCredential) -> ScramRefused:
    client, server = ScramClient(mechanism, "nobody", "wrong-password"), ScramServer(mechanism)
    server.receive(client.first())
    with pytest.raises(ScramRefused) as refused:
        server.verify(client.final(server.challenge(credential)))
    return refused.value


def _is_utf8(text: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in text)
