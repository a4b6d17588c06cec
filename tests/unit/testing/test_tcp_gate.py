"""A gate passes bytes both ways, drops all connections when shut, and reopens on the same port."""

import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.testing.tcp_gate import TcpGate

LARGE_BYTES = 3_000_000  # more than the sockets' buffers hold
PATIENCE_S = 180
CLOSED = 50


class Echo:
    """Echoes every connection until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._accepting, *self._threads):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def gate(echo: Echo) -> Iterator[TcpGate]:
    gate = TcpGate(echo.port)
    yield gate
    gate.close()


def connect(gate: TcpGate) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S)


def receive(connection: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = connection.recv(count)
        assert part, f"ended {count} bytes early"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_the_gate_passes_data_in_both_directions(gate: TcpGate) -> None:
    data = bytes(range(256)) * (LARGE_BYTES // 256)
    with connect(gate) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        assert receive(connection, len(data)) == data
        sender.join(PATIENCE_S)


def test_the_gates_address_names_its_own_port(gate: TcpGate, echo: Echo) -> None:
    assert gate.address == f"127.0.0.1:{gate.port}"
    assert gate.port not in (0, echo.port)


def test_a_shut_gate_drops_open_connections_and_refuses_new_ones(gate: TcpGate) -> None:
    with connect(gate) as one, connect(gate) as other:
        for connection in (one, other):
            connection.sendall(b"x")
            assert receive(connection, 1) == b"x"
        gate.shut()
        assert is_ended(one)
        assert is_ended(other)
    with pytest.raises(ConnectionRefusedError):
        connect(gate)


def test_a_reopened_gate_keeps_its_port(gate: TcpGate) -> None:
    port = gate.port
    gate.shut()
    gate.open()
    assert gate.port == port
    with connect(gate) as connection:
        connection.sendall(b"again")
        assert receive(connection, 5) == b"again"


def test_closing_the_gate_during_an_accept_leaves_no_socket_open(echo: Echo) -> None:
    for _ in range(CLOSED):
        gate = TcpGate(echo.port)
        with connect(gate) as late:
            gate.close()
            assert is_ended(late)
    gc.collect()  # reports a socket that nobody closed


def test_the_gate_shuts_before_the_given_bytes(gate: TcpGate) -> None:
    gate.shut_before(b"open sesame")
    with connect(gate) as connection, connect(gate) as other:
        for sock in (connection, other):
            sock.sendall(b"hello")
            assert receive(sock, 5) == b"hello"
        connection.sendall(b"then open sesame")
        assert is_ended(connection)
        assert is_ended(other)
    gate.wait_shut()
    with pytest.raises(ConnectionRefusedError):
        connect(gate)
    gate.open()
    with connect(gate) as connection:
        connection.sendall(b"open sesame")
        assert receive(connection, 11) == b"open sesame"


def test_open_and_shut_are_idempotent(gate: TcpGate) -> None:
    gate.open()
    gate.shut()
    gate.shut()
    gate.open()
    with connect(gate) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"


def test_closing_one_side_closes_the_other(gate: TcpGate) -> None:
    with connect(gate) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        connection.shutdown(socket.SHUT_WR)
        assert is_ended(connection)


def test_a_gate_without_a_target_closes_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    gate = TcpGate(port)
    try:
        with connect(gate) as connection:
            assert is_ended(connection)
    finally:
        gate.close()


def test_closing_the_gate_ends_its_thread(echo: Echo) -> None:
    before = threading.active_count()
    gate = TcpGate(echo.port)
    gate.close()
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        connect(gate)
