"""What a stranger may cost before the login: bytes, time, memory, and the log."""

import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profile import is_long, scaled
from tests.unit.network.harness import Client, NetworkHarness, framed, serve
from tests.unit.security.sasl.logins import MAX_RECEIVE_BYTES, make_listener

from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits
from penstock.protocol.malformed import MalformedRequest
from penstock.security.principal import Principal

_LOG_IN = b"let me in"
_STRANGERS = 200


def gate(request: InFlightRequest) -> None:
    """Logs in who asks for it, and answers with the principal."""
    login = request.login
    assert login is not None
    if bytes(request.frame) == _LOG_IN:
        request.complete_login(Principal("User", "alice"))
    elif request.caller.principal.name == "ANONYMOUS":
        raise MalformedRequest("not logged in")
    request.reply([framed(str(request.caller.principal).encode())])


def refuse(request: InFlightRequest) -> None:
    raise AssertionError("a request went around the login")


def serve_sasl(scenario: object, limits: NetworkLimits | None = None) -> NetworkHarness:
    return serve(
        scenario,  # type: ignore[arg-type]
        on_request=refuse,
        on_sasl_request=gate,
        sasl=make_listener(),
        limits=limits,
    )


def test_a_login_changes_the_principal_of_later_requests_only() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        assert await client.ask(_LOG_IN) == b"User:ANONYMOUS"
        assert await client.ask(b"next") == b"User:alice"
        assert serving.server.statistics().authentications == 1

    serve_sasl(scenario)


def test_a_stranger_may_not_announce_more_than_the_limit_and_a_user_may() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        stranger = await serving.connect()
        await stranger.send(struct.pack(">ih", MAX_RECEIVE_BYTES + 1, 17))
        assert await stranger.is_cut_off()
        user = await serving.connect()
        await user.ask(_LOG_IN)
        assert await user.ask(b"x" * (MAX_RECEIVE_BYTES + 1)) == b"User:alice"

    reports = serve_sasl(scenario).reports
    assert any(f"above the limit of {MAX_RECEIVE_BYTES}" in line for line in reports)


def test_memory_of_strangers_grows_with_the_bytes_that_they_send() -> None:
    """CVE-2022-34917: many announce half a megabyte, and send ten bytes."""

    async def scenario(serving: NetworkHarness) -> None:
        for _ in range(_STRANGERS):
            stranger = await serving.connect()
            await stranger.send(struct.pack(">i", MAX_RECEIVE_BYTES) + b"0123456789")
        await serving.until(lambda: serving.server.statistics().connections == _STRANGERS)
        received = 14 * _STRANGERS
        await serving.until(lambda: serving.server.statistics().received_bytes == received)
        assert serving.server.statistics().receive_buffer_bytes <= 4096 * _STRANGERS

    serve_sasl(scenario)


def test_a_login_that_does_not_end_is_given_up() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        user, stranger = await serving.connect(), await serving.connect()
        await user.ask(_LOG_IN)
        await serving.until(lambda: serving.server.statistics().connections == 2)
        serving.pass_time(5_000)
        await serving.until(lambda: serving.server.statistics().closed_slow == 1)
        assert await stranger.is_cut_off()
        assert await user.ask(b"next") == b"User:alice"

    reports = serve_sasl(scenario, NetworkLimits(login_ms=2_000)).reports
    assert any("the login took longer than 2000 ms" in line for line in reports)


@settings(
    max_examples=scaled(test=60, verify=2_000, release=20_000),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=not is_long(),
)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_bytes_of_strangers_never_reach_a_handler(pieces: list[bytes]) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        stranger: Client = await serving.connect()
        for piece in pieces:
            await stranger.send(piece)
        stranger.sock.close()
        await serving.until(lambda: serving.server.statistics().accepted == 1)
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert serving.server.statistics().unexpected_errors == 0
        assert serving.server.statistics().receive_buffer_bytes == 0

    serve_sasl(scenario)
