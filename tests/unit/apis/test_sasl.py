"""SaslHandshake and SaslAuthenticate, and the gate before all other requests, as bytes."""

import struct
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness, FakeConnection, Sent
from tests.unit.security.sasl.logins import PASSWORDS, make_listener, plain_token

from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import MalformedMessage, MalformedRequest
from penstock.protocol.scram import ScramClient, ScramMechanism
from penstock.security.principal import ANONYMOUS, Principal
from penstock.security.sasl.login import SaslLogin

HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
ALICE = Principal("User", "alice")
_TOKEN = plain_token("alice", PASSWORDS["alice"])
_SESSION_MS = 60_000


@pytest.fixture(name="harness", scope="module")
def _harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHarness]:
    folder: Path = tmp_path_factory.mktemp("sasl")
    harness = ApiHarness(folder)
    yield harness
    harness.close()


class Client:
    """One connection to a listener with SASL."""

    def __init__(self, harness: ApiHarness, *, session_ms: int = 0) -> None:
        self._harness = harness
        self.connection = FakeConnection(listener="CLIENTS")
        self.connection.login = SaslLogin(make_listener(session_ms=session_ms))

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> Sent:
        return self._harness.send(key, version, connection=self.connection, **fields)

    def send_token(self, token: bytes) -> bytes:
        """Without a header; the response's token, or nothing before there is one."""
        in_flight = self._harness.send_frame(bytearray(token), self.connection)
        frame = b"".join(bytes(part) for part in in_flight.parts)  # type: ignore[arg-type]
        assert not frame or struct.unpack(">i", frame[:4])[0] == len(frame) - 4
        return frame[4:]

    def log_in(self, version: int = 2, token: bytes = _TOKEN) -> Any:
        assert self.send(HANDSHAKE, 1, mechanism="PLAIN").reply.error_code == ErrorCode.NONE
        return self.send(AUTHENTICATE, version, auth_bytes=token).reply


@pytest.mark.parametrize("version", range(3))
def test_right_password_makes_the_next_requests_the_users(
    harness: ApiHarness, version: int
) -> None:
    client = Client(harness, session_ms=_SESSION_MS)
    client.send(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
    assert client.connection.caller.principal == ANONYMOUS
    answer = client.log_in(version)
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b"")
    if version >= 1:
        assert answer.session_lifetime == timedelta(milliseconds=_SESSION_MS)
    assert client.connection.caller.principal == ALICE
    assert client.send(ApiKey.METADATA, 9, topics=[]).in_flight.caller.principal == ALICE


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_takes_two_tokens_and_proves_the_server(
    harness: ApiHarness, mechanism: ScramMechanism
) -> None:
    client, scram = Client(harness), ScramClient(mechanism, "alice", PASSWORDS["alice"])
    assert client.send(HANDSHAKE, 1, mechanism=mechanism.value).reply.mechanisms == (
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
    )
    challenge = client.send(AUTHENTICATE, 2, auth_bytes=scram.first()).reply
    assert client.connection.caller.principal == ANONYMOUS
    final = client.send(AUTHENTICATE, 2, auth_bytes=scram.final(challenge.auth_bytes)).reply
    scram.verify(final.auth_bytes)
    assert client.connection.caller.principal == ALICE


def test_tokens_without_a_header_follow_version_0_of_the_handshake(harness: ApiHarness) -> None:
    client = Client(harness)
    scram = ScramClient(ScramMechanism.SHA_256, "alice", PASSWORDS["alice"])
    client.send(HANDSHAKE, 0, mechanism="SCRAM-SHA-256")
    scram.verify(client.send_token(scram.final(client.send_token(scram.first()))))
    assert client.connection.caller.principal == ALICE
    assert client.send(ApiKey.METADATA, 9, topics=[]).is_answered


def test_a_wrong_token_without_a_header_closes_the_connection_unanswered(
    harness: ApiHarness,
) -> None:
    client = Client(harness)
    client.send(HANDSHAKE, 0, mechanism="PLAIN")
    assert client.send_token(plain_token("alice", "no")) == b""
    assert not client.connection.is_draining
    harness.clock.advance_ms(100)
    assert client.connection.is_draining


def test_a_failure_is_answered_after_a_delay_and_closes_the_connection(
    harness: ApiHarness,
) -> None:
    texts = set()
    for user, password in (("alice", "no"), ("carol", "no")):
        client = Client(harness)
        client.send(HANDSHAKE, 1, mechanism="PLAIN")
        sent = client.send(AUTHENTICATE, 2, auth_bytes=plain_token(user, password))
        harness.clock.advance_ms(99)
        assert not sent.is_answered
        harness.clock.advance_ms(1)
        answer = sent.reply
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        texts.add(answer.error_message)
        assert client.connection.is_draining
        assert client.connection.caller.principal == ANONYMOUS
        assert len(client.connection.failed_logins) == 1
    assert len(texts) == 1  # does not tell whether the user exists


def test_nothing_is_served_while_a_failure_waits_for_its_response(harness: ApiHarness) -> None:
    client = Client(harness)
    client.send(HANDSHAKE, 1, mechanism="PLAIN")
    client.send(AUTHENTICATE, 2, auth_bytes=b"x")
    with pytest.raises(MalformedRequest, match="its login has failed"):
        client.send(HANDSHAKE, 1, mechanism="PLAIN")


def test_a_client_that_left_is_not_answered(harness: ApiHarness) -> None:
    client = Client(harness)
    client.send(HANDSHAKE, 1, mechanism="PLAIN")
    sent = client.send(AUTHENTICATE, 2, auth_bytes=b"x")
    client.connection.close("gone")
    harness.clock.advance_ms(100)
    assert not sent.is_answered


def test_an_unknown_mechanism_is_answered_with_the_enabled_ones(harness: ApiHarness) -> None:
    client = Client(harness)
    sent = client.send(HANDSHAKE, 1, mechanism="GSSAPI")
    harness.clock.advance_ms(100)
    assert sent.reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sent.reply.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert client.connection.is_draining


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, AUTHENTICATE, ApiKey.FETCH])
def test_a_request_before_the_login_closes_the_connection(harness: ApiHarness, key: ApiKey) -> None:
    frame = bytearray(struct.pack(">hhih", key, 0, 1, -1) + b"\xff" * 20)
    with pytest.raises(MalformedRequest, match="came before a login"):
        harness.send_frame(frame, Client(harness).connection)


def test_a_listener_without_sasl_answers_that_there_is_no_login(harness: ApiHarness) -> None:
    assert harness.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    refused = harness.ask(AUTHENTICATE, 2, auth_bytes=b"x")
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert harness.connection.caller.principal == ANONYMOUS


def test_a_session_is_renewed_on_its_connection(harness: ApiHarness) -> None:
    client = Client(harness, session_ms=_SESSION_MS)
    client.log_in()
    harness.clock.advance_ms(_SESSION_MS - 1)
    assert client.log_in().error_code == ErrorCode.NONE
    harness.clock.advance_ms(_SESSION_MS)
    assert client.send(ApiKey.METADATA, 9, topics=[]).is_answered
    assert client.connection.expired_sessions == 0


def test_a_session_that_is_not_renewed_ends_with_its_next_request(harness: ApiHarness) -> None:
    client = Client(harness, session_ms=_SESSION_MS)
    client.log_in()
    harness.clock.advance_ms(_SESSION_MS + 1)
    with pytest.raises(MalformedRequest, match="its session has ended"):
        client.send(ApiKey.METADATA, 9, topics=[])
    assert client.connection.expired_sessions == 1


def test_another_user_cannot_take_a_connection_over(harness: ApiHarness) -> None:
    client = Client(harness)
    client.log_in()
    harness.clock.advance_ms(1_000)
    client.send(HANDSHAKE, 1, mechanism="PLAIN")
    sent = client.send(AUTHENTICATE, 2, auth_bytes=plain_token("bob", PASSWORDS["bob"]))
    harness.clock.advance_ms(100)
    assert sent.reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.connection.caller.principal == ALICE
    assert client.connection.is_draining


def test_renewing_at_once_is_refused_and_changes_nothing(harness: ApiHarness) -> None:
    client = Client(harness)
    client.log_in()
    refused = client.send(HANDSHAKE, 1, mechanism="PLAIN").reply
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.send(ApiKey.METADATA, 9, topics=[]).is_answered


@pytest.mark.parametrize("frame", [b"x", b"\0\x11", b"\0\x11\0\x01\0\0\0\1\xff\xff\x7f\xff"])
def test_malformed_frames_close_the_connection(harness: ApiHarness, frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        harness.send_frame(bytearray(frame), Client(harness).connection)
