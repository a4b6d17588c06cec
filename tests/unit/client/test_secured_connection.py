"""Connections with TLS and SASL against a broker that speaks Kafka's protocol over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.conftest import Run
from tests.unit.client.sasl_script import USERS, SaslScript
from tests.unit.client.scripted_broker import ZERO, Answer, ReceivedRequest, ScriptedBroker

from penstock.client.address import Address
from penstock.client.cluster import ClusterClient
from penstock.client.connection import BrokerConnection, ConnectionLimits
from penstock.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    InvalidClientConfig,
    TlsFailed,
)
from penstock.client.metadata import metadata_call
from penstock.client.security.authenticator import Authenticator
from penstock.client.security.properties import parse_client_security
from penstock.protocol.api_keys import ApiKey
from penstock.testing.certificates import Certificate, CertificateAuthority

ASK = metadata_call([])
NAME, PASSWORD = next(iter(USERS.items()))
ALICE = {"sasl.username": NAME, "sasl.password": PASSWORD}


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def empty_metadata(_: ReceivedRequest) -> Answer:
    return {
        "throttle_time": ZERO,
        "brokers": (),
        "cluster_id": "secured",
        "controller_id": -1,
        "topics": (),
    }


def serving(certificate: Certificate, directory: Path, *, asks_for_one: bool = False) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = certificate.write(directory, "server")
    context.load_cert_chain(files.certificate, files.key)
    if asks_for_one:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.authority)
    return context


async def ask(
    address: Address, settings: dict[str, Any], limits: ConnectionLimits | None = None
) -> str:
    """Connect with these settings, ask for metadata, and return the cluster's id."""
    authenticator = Authenticator(parse_client_security(settings))
    connection = await BrokerConnection.open(address, authenticator=authenticator, limits=limits)
    try:
        answer = await connection.call(ASK, timeout_ms=60_000)
        return str(answer.cluster_id)
    finally:
        await connection.close()


async def fails(
    address: Address, settings: dict[str, Any], limits: ConnectionLimits | None = None
) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await ask(address, settings, limits)
    return caught.value


# TLS.


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_requests_go_through_tls(
    run: Run, authority: CertificateAuthority, tmp_path: Path, host: str
) -> None:
    async def scenario() -> None:
        tls = serving(authority.issue("broker"), tmp_path)
        async with ScriptedBroker(tls=tls) as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            trust = {"security.protocol": "ssl", "ssl.ca.pem": authority.certificate_pem.decode()}
            assert await ask(Address(host, broker.address.port), trust) == "secured"

    run(scenario)


def test_broker_that_is_not_to_be_trusted_is_refused(
    run: Run, authority: CertificateAuthority, tmp_path: Path
) -> None:
    async def scenario() -> None:
        tls = serving(authority.issue("broker", hosts=["kafka.example.org"]), tmp_path)
        async with ScriptedBroker(tls=tls) as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            trust = {"security.protocol": "ssl", "ssl.ca.pem": authority.certificate_pem.decode()}
            other = {**trust, "ssl.ca.pem": CertificateAuthority().certificate_pem.decode()}
            for settings in (trust, other, {"security.protocol": "ssl"}):
                error = await fails(broker.address, settings)
                assert isinstance(error, TlsFailed)
                assert "its certificate is not accepted" in str(error)
            unchecked = {**trust, "ssl.endpoint.identification.algorithm": "none"}
            assert await ask(broker.address, unchecked) == "secured"
            blind = {"security.protocol": "ssl", "enable.ssl.certificate.verification": False}
            assert await ask(broker.address, blind) == "secured"
            assert broker.count(ApiKey.METADATA) == 2

    run(scenario)


def test_client_shows_its_certificate_from_any_kind_of_file(
    run: Run, authority: CertificateAuthority, tmp_path: Path
) -> None:
    files = authority.issue("alice", hosts=[]).write(tmp_path, password="secret")
    trust = {"security.protocol": "ssl", "ssl.ca.location": str(files.authority)}
    locations = {
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
        "ssl.key.password": "secret",
    }
    texts = {
        "ssl.keystore.certificate.chain": files.certificate.read_text().replace("\n", " "),
        "ssl.keystore.key": files.key.read_text().replace("\n", " "),
        "ssl.key.password": "secret",
    }
    stores = [
        {"ssl.keystore.location": str(files.pem_keystore), "ssl.key.password": "secret"},
        {"ssl.keystore.location": str(files.pkcs12), "ssl.keystore.password": "secret"},
    ]

    async def scenario() -> None:
        tls = serving(authority.issue("broker"), tmp_path, asks_for_one=True)
        async with ScriptedBroker(tls=tls) as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            for identity in (locations, texts, *stores):
                assert await ask(broker.address, {**trust, **identity}) == "secured"
            assert isinstance(await fails(broker.address, trust), ConnectFailed)
            assert broker.count(ApiKey.METADATA) == 4

    run(scenario)


def test_trust_comes_from_any_kind_of_store(
    run: Run, authority: CertificateAuthority, tmp_path: Path
) -> None:
    files = authority.issue("store").write(tmp_path / "store")

    async def scenario() -> None:
        tls = serving(authority.issue("broker"), tmp_path)
        async with ScriptedBroker(tls=tls) as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            for trust in (
                {"ssl.truststore.location": str(files.authority), "ssl.truststore.type": "PEM"},
                {
                    "ssl.truststore.location": str(files.pkcs12),
                    "ssl.truststore.password": "changeit",
                },
                {"ssl.ca.location": str(tmp_path / "store")},
            ):
                settings = {"security.protocol": "ssl", **trust}
                assert await ask(broker.address, settings) == "secured"

    run(scenario)


def test_rotated_certificate_is_used_by_the_next_connection(
    run: Run, authority: CertificateAuthority, tmp_path: Path
) -> None:
    async def scenario() -> None:
        tls = serving(authority.issue("broker"), tmp_path, asks_for_one=True)
        async with ScriptedBroker(tls=tls) as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            stranger = CertificateAuthority().issue("alice").write(tmp_path, "alice")
            settings = {
                "security.protocol": "ssl",
                "ssl.ca.pem": authority.certificate_pem.decode(),
                "ssl.keystore.location": str(stranger.pem_keystore),
            }
            authenticator = Authenticator(parse_client_security(settings))
            with pytest.raises(ConnectFailed):
                await BrokerConnection.open(broker.address, authenticator=authenticator)
            authority.issue("alice").write(tmp_path, "alice")
            connection = await BrokerConnection.open(broker.address, authenticator=authenticator)
            await connection.close()

    run(scenario)


def test_plaintext_and_tls_do_not_mix_and_say_so(
    run: Run, authority: CertificateAuthority, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            soon = ConnectionLimits(connect_timeout_ms=200)  # it waits for a whole frame
            error = await fails(broker.address, {"security.protocol": "ssl"}, soon)
            assert isinstance(error, ConnectFailed)
        async with ScriptedBroker(tls=serving(authority.issue("broker"), tmp_path)) as broker:
            error = await fails(broker.address, {})
            assert isinstance(error, ConnectFailed)

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        ({"ssl.ca.pem": "no certificate"}, "ssl.ca.pem: the text has no certificate"),
        ({"ssl.cipher.suites": "NOTHING"}, "ssl.cipher.suites=NOTHING"),
        ({"ssl.crl.location": "/nowhere/crl.pem"}, "ssl.crl.location"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    run: Run, settings: dict[str, str], message: str
) -> None:
    async def scenario() -> None:
        error = await fails(Address("127.0.0.1", 1), {"security.protocol": "ssl", **settings})
        assert isinstance(error, InvalidClientConfig)
        assert message in str(error)

    run(scenario)


def test_wrong_passwords_and_jks_files_are_named(
    run: Run, authority: CertificateAuthority, tmp_path: Path
) -> None:
    files = authority.issue("alice").write(tmp_path, password="secret")
    java = tmp_path / "alice.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    cases: list[tuple[dict[str, str], str]] = [
        ({"ssl.keystore.location": str(java)}, "keytool -importkeystore"),
        ({"ssl.keystore.location": str(files.pkcs12)}, "its password is wrong"),
        ({"ssl.keystore.location": str(files.certificate)}, "has no private key"),
        ({"ssl.keystore.location": str(files.pem_keystore)}, "ssl.key.password is not set"),
        (
            {"ssl.keystore.location": str(files.pem_keystore), "ssl.key.password": "wrong"},
            "ssl.key.password is wrong",
        ),
    ]

    async def scenario() -> None:
        for settings, message in cases:
            error = await fails(Address("127.0.0.1", 1), {"security.protocol": "ssl", **settings})
            assert isinstance(error, InvalidClientConfig)
            assert message in str(error)

    run(scenario)


# SASL.


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", list(USERS))
def test_client_logs_in_before_its_first_request(run: Run, mechanism: str, name: str) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            script = SaslScript(broker, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
            settings = {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": mechanism,
                "sasl.username": name,
                "sasl.password": USERS[name],
            }
            assert await ask(broker.address, settings) == "secured"
            assert script.logins == [name]
            keys = [request.api_key for request in broker.requests]
            assert keys[:2] == [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE]
            assert keys[-1] is ApiKey.METADATA

    run(scenario)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_password_fails_at_once_and_shows_nothing(run: Run, mechanism: str) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            SaslScript(broker, mechanism)
            settings = {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": mechanism,
                "sasl.username": NAME,
                "sasl.password": "wr0ng-pa55word",
            }
            security = parse_client_security(settings)
            client = ClusterClient(str(broker.address), security=security)
            with pytest.raises(AuthenticationFailed, match="refuses the login") as refused:
                await client.metadata()
            await client.close()
            assert "wr0ng" not in str(refused.value)
            assert broker.count(ApiKey.SASL_HANDSHAKE) == 1

    run(scenario)


def test_mechanism_that_the_broker_lacks_is_named_with_those_it_has(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script = SaslScript(broker, "SCRAM-SHA-512", "OAUTHBEARER")
            settings = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", **ALICE}
            error = await fails(broker.address, settings)
            assert isinstance(error, AuthenticationFailed)
            assert "it accepts: SCRAM-SHA-512, OAUTHBEARER" in str(error)
            assert not script.tokens

    run(scenario)


def test_server_that_does_not_prove_itself_in_scram_gets_no_request(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            script = SaslScript(broker, "SCRAM-SHA-256")
            script.passwords[NAME] = PASSWORD
            authenticate = broker.handlers[ApiKey.SASL_AUTHENTICATE]

            def forge(request: ReceivedRequest) -> Answer:
                answer = authenticate(request)
                assert isinstance(answer, dict)
                token = answer["auth_bytes"]
                return answer | {"auth_bytes": b"v=AAAA" if token.startswith(b"v=") else token}

            broker.handlers[ApiKey.SASL_AUTHENTICATE] = forge
            settings = {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                **ALICE,
            }
            error = await fails(broker.address, settings)
            assert isinstance(error, AuthenticationFailed)
            assert "did not prove" in str(error)
            assert broker.count(ApiKey.METADATA) == 0

    run(scenario)


def test_token_is_sent_and_a_refused_one_is_acknowledged(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            script = SaslScript(broker, "OAUTHBEARER")
            settings = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
            good = {**settings, "oauth_cb": lambda _: ("good", 1e12)}
            assert await ask(broker.address, good) == "secured"
            bad = {**settings, "oauth_cb": lambda _: ("bad-t0ken", 1e12)}
            error = await fails(broker.address, bad)
            assert isinstance(error, AuthenticationFailed)
            assert "bad-t0ken" not in str(error)
            assert script.tokens[-1] == b"\x01"

    run(scenario)


def test_client_logs_in_again_before_its_session_ends(run: Run) -> None:
    """KIP-368: requests that wait meanwhile are sent afterwards, on the same connection."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            held: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def hold(request: ReceivedRequest) -> Answer:
                await held
                return empty_metadata(request)

            broker.handlers[ApiKey.METADATA] = hold
            # Long enough for a slow machine to send two requests before the first session ends.
            script = SaslScript(broker, "SCRAM-SHA-256", lifetime_ms=2_000)
            settings = {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                **ALICE,
            }
            authenticator = Authenticator(parse_client_security(settings))
            limits = ConnectionLimits(max_in_flight=2)
            connection = await BrokerConnection.open(
                broker.address, authenticator=authenticator, limits=limits
            )
            replies = [
                asyncio.ensure_future(connection.call(ASK, timeout_ms=60_000)) for _ in range(6)
            ]
            for _ in iter(lambda: connection._is_logging_in, True):  # no event says so
                await asyncio.sleep(0.005)
            assert len(script.logins) == 1
            assert connection.in_flight == 2
            script.lifetime_ms = 50
            held.set_result(None)
            answers = await asyncio.gather(*replies)
            assert {answer.cluster_id for answer in answers} == {"secured"}
            while len(script.logins) < 3:
                await connection.call(ASK, timeout_ms=60_000)
            assert broker.connections == 1
            await connection.close()

    run(scenario)


def test_login_that_is_refused_the_next_time_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            script = SaslScript(broker, "PLAIN", lifetime_ms=50)
            settings = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", **ALICE}
            authenticator = Authenticator(parse_client_security(settings))
            connection = await BrokerConnection.open(broker.address, authenticator=authenticator)
            script.passwords[NAME] = "changed"
            with contextlib.suppress(AuthenticationFailed):
                while True:
                    await connection.call(ASK, timeout_ms=60_000)
            with pytest.raises(AuthenticationFailed):
                await connection.call(ASK, timeout_ms=60_000)
            assert not connection.is_open
            await connection.close()

    run(scenario)


def test_plain_client_is_not_sent_to_a_broker_without_sasl(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = empty_metadata
            settings = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", **ALICE}
            error = await fails(broker.address, settings)
            assert "SaslHandshake" in str(error)
            assert broker.count(ApiKey.METADATA) == 0

    run(scenario)
