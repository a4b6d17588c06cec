"""TLS connections: handshakes, requests and responses, and clients that break off or misbehave."""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.unit.network.harness import LOOPS, NetworkHarness, Scenario, framed, serve
from tests.unit.security.tls_files import make_server_tls

from penstock.model.slices import FileRun, FileSlice
from penstock.network.handshake import ListenerTls
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.limits import NetworkLimits
from penstock.network.tls_socket import READ_BYTES, RECORD_BYTES, TlsSocket
from penstock.testing.certificates import CertificateAuthority

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def trusting(authority: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    assert context.check_hostname
    return context


def showing(authority: CertificateAuthority, folder: Path, name: str) -> ssl.SSLContext:
    """With a certificate of its own."""
    context = trusting(authority)
    context.load_cert_chain(authority.issue(name).write(folder, name).pem_keystore)
    return context


async def connect(serving: NetworkHarness, context: ssl.SSLContext) -> Streams:
    host, port = serving.address
    return await asyncio.open_connection(host, port, ssl=context, limit=2**24)


async def ask(streams: Streams, body: bytes) -> bytes:
    reader, writer = streams
    writer.write(framed(body))
    await writer.drain()
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def close(streams: Streams) -> None:
    streams[1].close()
    await streams[1].wait_closed()


def echo_principal(request: InFlightRequest) -> None:
    request.reply([framed(str(request.caller.principal).encode())])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_of_every_size_are_answered_over_tls(
    tmp_path: Path, authority: CertificateAuthority, loop: str, version: ssl.TLSVersion
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        context = trusting(authority)
        context.minimum_version = context.maximum_version = version
        streams = await connect(serving, context)
        for size in (10, 4096, 16_383, 16_384, 16_385, 262_140, 262_144, 3_000_000):
            body = os.urandom(size)
            assert await ask(streams, body) == body
        await close(streams)

    serve(scenario, loop=loop, tls=make_server_tls(tmp_path, authority))


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_that_share_records_are_all_answered(
    tmp_path: Path, authority: CertificateAuthority, loop: str
) -> None:
    """More than one read takes: OpenSSL holds decrypted bytes that the loop does not see."""

    async def scenario(serving: NetworkHarness) -> None:
        reader, writer = streams = await connect(serving, trusting(authority))
        bodies = [bytes([65 + index % 26]) * (100 + 37 * (index % 400)) for index in range(500)]
        writer.write(b"".join(framed(body) for body in bodies))
        for body in bodies:
            assert await reader.readexactly(len(body) + 4) == framed(body)
        await close(streams)

    serve(scenario, loop=loop, tls=make_server_tls(tmp_path, authority))


def test_a_client_that_reads_slowly_gets_every_byte(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    """The socket is full in the middle of a record, which must then be written again."""
    size = 8_000_000
    body = os.urandom(size)

    def answer(request: InFlightRequest) -> None:
        request.reply([struct.pack(">i", size + 3), b"abc", body])

    async def scenario(serving: NetworkHarness) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, serving.address)
        reader, writer = streams = await asyncio.open_connection(
            sock=sock, ssl=trusting(authority), server_hostname="localhost", limit=8192
        )
        writer.write(framed(b"0123456789"))
        await serving.until(lambda: serving.server.statistics().sent_bytes > 0)
        received = await reader.readexactly(size + 7)
        assert received[4:] == b"abc" + body
        await close(streams)

    serve(
        scenario,
        on_request=answer,
        limits=NetworkLimits(send_buffer_bytes=4096),
        tls=make_server_tls(tmp_path, authority),
    )


def test_file_slices_are_encrypted(tmp_path: Path, authority: CertificateAuthority) -> None:
    content = os.urandom(1_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)

    def answer(request: InFlightRequest) -> None:
        run = FileRun((FileSlice(fd, 5, 700_000), FileSlice(fd, 800_000, 100)))
        request.reply([struct.pack(">i", len(run)), run])

    async def scenario(serving: NetworkHarness) -> None:
        streams = await connect(serving, trusting(authority))
        expected = content[5:700_005] + content[800_000:800_100]
        assert await ask(streams, b"0123456789") == expected
        await close(streams)

    try:
        serve(scenario, on_request=answer, tls=make_server_tls(tmp_path, authority))
    finally:
        os.close(fd)


def test_the_principal_is_the_name_in_the_certificate(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        streams = await connect(serving, showing(authority, tmp_path, "alice"))
        assert await ask(streams, b"0123456789") == b"User:CN=alice"
        await close(streams)

    tls = make_server_tls(tmp_path, authority, client_auth="required")
    serve(scenario, on_request=echo_principal, tls=tls)


def test_without_a_certificate_a_client_is_anonymous_where_that_is_allowed(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        streams = await connect(serving, trusting(authority))
        assert await ask(streams, b"0123456789") == b"User:ANONYMOUS"
        await close(streams)
        streams = await connect(serving, showing(authority, tmp_path, "bob"))
        assert await ask(streams, b"0123456789") == b"User:bob"
        await close(streams)

    tls = make_server_tls(
        tmp_path, authority, client_auth="requested", mapping_rules="RULE:^CN=(.*)$/$1/"
    )
    serve(scenario, on_request=echo_principal, tls=tls)


def _refused(tls: ListenerTls, scenario: Scenario, expected: str) -> None:
    async def until_counted(serving: NetworkHarness) -> None:
        await scenario(serving)
        await serving.until(lambda: serving.server.statistics().authentication_failures == 1)

    serving = serve(until_counted, on_request=_never, tls=tls)
    (report,) = serving.reports
    assert "SSL 127.0.0.1: TLS handshake failed: " in report
    assert expected in report
    assert serving.server.statistics().connections == 0


def _never(request: InFlightRequest) -> None:
    raise AssertionError("a request reached its handler without a handshake")


async def _fails_to_connect(serving: NetworkHarness, context: ssl.SSLContext) -> None:
    """TLS 1.3 clients learn of a refused certificate with the first read."""
    try:
        reader, writer = await connect(serving, context)
    except (ssl.SSLError, ConnectionError):
        return
    with suppress(ssl.SSLError, ConnectionError):
        writer.write(framed(b"0123456789"))
        assert await reader.read() == b""
    with suppress(ssl.SSLError, ConnectionError):
        await close((reader, writer))


def test_a_client_without_a_certificate_is_refused(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        await _fails_to_connect(serving, trusting(authority))

    tls = make_server_tls(tmp_path, authority, client_auth="required")
    _refused(tls, scenario, "shows no certificate, and ssl.client.auth=required")


@pytest.mark.parametrize("client_auth", ["required", "requested"])
def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, authority: CertificateAuthority, client_auth: str
) -> None:
    stranger = CertificateAuthority("stranger").issue("mallory").write(tmp_path, "mallory")

    async def scenario(serving: NetworkHarness) -> None:
        context = trusting(authority)
        context.load_cert_chain(stranger.pem_keystore)
        await _fails_to_connect(serving, context)

    tls = make_server_tls(tmp_path, authority, client_auth=client_auth)
    _refused(tls, scenario, "the client's certificate is refused: ")


def test_a_name_that_no_rule_maps_is_refused(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        await _fails_to_connect(serving, showing(authority, tmp_path, "eve"))

    tls = make_server_tls(
        tmp_path, authority, client_auth="required", mapping_rules="RULE:^CN=admin$/admin/"
    )
    _refused(tls, scenario, "no rule of ssl.principal.mapping.rules applies")


def test_a_client_that_does_not_trust_the_broker_is_explained(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        await asyncio.to_thread(_shake_hands, serving.address, CertificateAuthority("another"))

    _refused(make_server_tls(tmp_path, authority), scenario, "does not trust this broker's")


def _shake_hands(address: tuple[str, int], authority: CertificateAuthority) -> None:
    """A blocking client tells the broker what it objects to; asyncio just closes."""
    with socket.create_connection(address) as sock, pytest.raises(ssl.SSLCertVerificationError):
        trusting(authority).wrap_socket(sock, server_hostname="localhost")


def test_a_client_that_gives_up_is_explained(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        await _fails_to_connect(serving, trusting(CertificateAuthority("another")))

    _refused(make_server_tls(tmp_path, authority), scenario, "the client gave up")


@pytest.mark.parametrize("first", [framed(b"0123456789"), b"GET / HTTP/1.1\r\n\r\n", b"\x80"])
def test_plaintext_to_a_tls_listener_is_named(
    tmp_path: Path, authority: CertificateAuthority, first: bytes
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(first)
        assert await client.is_cut_off()

    _refused(make_server_tls(tmp_path, authority), scenario, "sends plaintext to a TLS listener")


def test_tls_to_a_plaintext_listener_is_named(authority: CertificateAuthority) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        await _fails_to_connect(serving, trusting(authority))
        await serving.until(lambda: serving.server.statistics().closed_malformed == 1)

    (report,) = serve(scenario, on_request=_never).reports
    assert "the client uses TLS, and this listener does not" in report


def test_a_handshake_that_is_not_finished_ends_in_time(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        silent, slow = await serving.connect(), await serving.connect()
        await slow.send(b"\x16\x03\x01")
        await serving.until(lambda: serving.server.statistics().connections == 2)
        serving.pass_time(NetworkLimits().first_frame_ms + 1)
        assert await silent.is_cut_off()
        assert await slow.is_cut_off()

    reports = serve(scenario, on_request=_never, tls=make_server_tls(tmp_path, authority)).reports
    assert ["took longer than 10000 ms" in report for report in reports] == [True, True]


@pytest.mark.parametrize(
    "leave", [lambda client: client.sock.close(), lambda client: client.reset()]
)
def test_clients_that_leave_during_the_handshake_leave_nothing_behind(
    tmp_path: Path, authority: CertificateAuthority, leave: Callable[[object], None]
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        for first in (b"", b"\x16", b"\x16\x03\x01\x02\x00"):
            client = await serving.connect()
            await client.send(first)
            await serving.until(lambda: serving.server.statistics().connections == 1)
            leave(client)
            await serving.until(lambda: serving.server.statistics().connections == 0)

    serve(scenario, on_request=_never, tls=make_server_tls(tmp_path, authority))


def test_open_handshakes_do_not_delay_the_shutdown(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send(b"\x16")
        await serving.until(lambda: serving.server.statistics().connections == 1)
        serving.server.stop_requests()
        assert await client.is_cut_off()

    serve(scenario, on_request=_never, tls=make_server_tls(tmp_path, authority))


def test_handshakes_count_against_the_connections_of_an_address(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        first = await serving.connect()
        await serving.until(lambda: serving.server.statistics().connections == 1)
        assert await (await serving.connect()).is_cut_off()
        first.sock.close()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        streams = await connect(serving, trusting(authority))
        assert await ask(streams, b"0123456789") == b"0123456789"
        await close(streams)

    serve(
        scenario,
        limits=NetworkLimits(max_connections_per_ip=1),
        tls=make_server_tls(tmp_path, authority),
    )


def connected_pair(
    folder: Path, authority: CertificateAuthority
) -> tuple[TlsSocket, ssl.SSLSocket]:
    """Ours, not blocking, and a client's, after the handshake."""
    ours, theirs = socket.socketpair()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("broker").write(folder).pem_keystore)
    with ThreadPoolExecutor() as pool:
        handshake = pool.submit(
            trusting(authority).wrap_socket, theirs, server_hostname="localhost"
        )
        secured = context.wrap_socket(ours, server_side=True)
        client = handshake.result()
    secured.setblocking(False)
    return TlsSocket(secured), client


def test_sending_to_a_client_that_has_left_is_a_broken_pipe(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    """As of a plain socket, which is no warning; killed clients leave without close_notify."""
    sock, client = connected_pair(tmp_path, authority)
    socket.socket(fileno=client.detach()).close()
    assert sock.recv_into(memoryview(bytearray(10))) == 0
    with closing(sock), pytest.raises(BrokenPipeError):
        sock.send(b"late")


def test_the_rest_of_a_frame_is_read_at_once_also_from_short_records(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    """librdkafka writes a record for each message: a pass of the event loop for each of them
    takes longer than to decrypt it."""
    sock, client = connected_pair(tmp_path, authority)
    buffer = memoryview(bytearray(1 << 20))
    with closing(sock), client:
        for number in range(50):
            client.sendall(bytes([number]) * 1000)
        assert sock.recv_into(buffer) == 1000
        assert sock.recv_rest(buffer) == 49_000
        assert buffer[48_999] == 49
        with pytest.raises(BlockingIOError):
            sock.recv_rest(buffer)
        # A buffer that is full leaves the rest of a record, which the connection asks for.
        client.sendall(bytes(1000))
        assert sock.recv_rest(buffer[:600]) == 600
        assert sock.has_decrypted()
        assert sock.recv_rest(buffer) == 400


def test_other_connections_have_their_turn_between_reads(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    sock, client = connected_pair(tmp_path, authority)
    buffer, sent = memoryview(bytearray(1 << 20)), 40 * RECORD_BYTES
    with closing(sock), client, ThreadPoolExecutor() as pool:
        sending = pool.submit(client.sendall, bytes(sent))
        counts: list[int] = []
        while sum(counts) < sent:
            with suppress(BlockingIOError):
                counts.append(sock.recv_rest(buffer))
                assert not sock.has_decrypted()
        sending.result()
    assert max(counts) <= READ_BYTES


def test_bytes_that_are_no_records_close_the_connection_only(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        good = await connect(serving, trusting(authority))
        client = await serving.connect()
        await client.send(b"\x16\x03\x01\x00\x05" + b"\xff" * 5)
        await serving.until(lambda: serving.server.statistics().authentication_failures == 1)
        assert await ask(good, b"0123456789") == b"0123456789"
        await close(good)

    serve(scenario, tls=make_server_tls(tmp_path, authority))
