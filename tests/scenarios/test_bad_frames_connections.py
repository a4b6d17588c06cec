"""Clients that do not read, send half a request, disconnect midway, or connect by the thousands."""

import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta

import pytest
from tests.profile import is_long, scaled
from tests.scenarios.raw_client import RawClient, request_frame
from tests.scenarios.watched_broker import MIB, WatchedBroker

import penstock
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.records import Record, build_batch

pytestmark = pytest.mark.xdist_group("bad-connections")

# With Kafka's default of 50, some connections out of many are accepted only a second later.
SETTINGS = {"socket.listen.backlog.size": 4096}
FIRST_REQUEST_S = 10  # time limit for a complete first request
LATER_REQUEST_S = 30
API_VERSIONS = request_frame(ApiKey.API_VERSIONS, 0)


class SlowSender:
    """Sends one byte per second, then stops; records when it is disconnected."""

    def __init__(self, client: RawClient, data: bytes) -> None:
        self._client = client
        self._data = data
        self._lasted_s: float | None = None  # None: it got a response instead
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        began = time.monotonic()
        for byte in self._data:
            self._client.try_send(bytes([byte]))
            if select.select([self._client.socket], [], [], 1.0)[0]:
                break
        if self._client.is_cut_off():
            self._lasted_s = time.monotonic() - began

    def wait(self) -> float | None:
        self._thread.join()
        self._client.socket.close()
        return self._lasted_s


@pytest.fixture(scope="module")
def slow(watched: WatchedBroker) -> list[SlowSender]:
    """Started before the other tests, so that their time limits expire meanwhile."""
    frame = request_frame(ApiKey.API_VERSIONS, 0, client_id="x" * 60)
    return [SlowSender(watched.connect(), data) for data in (frame, frame[:20], b"")]


@pytest.fixture(autouse=True)
def _slow_beside(slow: object) -> None:
    """Slow senders run beside every test of this module."""


# -- slow readers ------------------------------------------------------------------------------


def test_responses_to_ten_thousand_pipelined_requests_come_in_order(
    broker: WatchedBroker,
) -> None:
    count = 10_000
    frames = b"".join(
        request_frame(ApiKey.API_VERSIONS, 0, correlation_id=number) for number in range(count)
    )
    client = broker.connect(receive_buffer_bytes=4096)
    sender = threading.Thread(target=client.try_send, args=(frames,))
    with client, broker.growing_less_than(10 * MIB):
        sender.start()
        wait_until_stuck(client)
        broker.check()
        for number in range(count):
            client.read_response(ApiKey.API_VERSIONS, 0, number)
        sender.join()
        assert client.is_served()


def wait_until_stuck(client: RawClient) -> None:
    """Waits until the broker cannot send any more: nothing new arrives."""
    arrived = -1
    while (now := len(client.socket.recv(MIB, socket.MSG_PEEK))) > arrived:
        arrived = now
        time.sleep(0.1)


def test_unread_responses_take_bounded_memory(broker: WatchedBroker) -> None:
    """Forty clients request a thousand responses of 5 KB each, which are built in memory."""
    broker.create_topic("wide", partitions=200)
    requests = request_frame(ApiKey.METADATA, 5, topics=[{"name": "wide"}]) * 1000
    with ExitStack() as clients, broker.growing_less_than(80 * MIB):
        senders = []
        for _ in range(40):
            client = clients.enter_context(broker.connect(receive_buffer_bytes=4096))
            sender = threading.Thread(target=client.try_send, args=(requests,))
            sender.start()
            senders.append((client, sender))
        broker.check()
        for client, sender in senders:
            client.socket.shutdown(socket.SHUT_RDWR)
            sender.join()


@pytest.fixture(scope="module")
def large(watched: WatchedBroker) -> str:
    """A topic of 8 MiB."""
    watched.create_topic("large")
    record = Record(0, 1, None, bytes(MIB // 2), ())
    batch = bytes(build_batch([record]))
    with watched.connect() as client:
        for _ in range(16):
            data = {"name": "large", "partition_data": [{"index": 0, "records": batch}]}
            client.ask(ApiKey.PRODUCE, 9, acks=1, topic_data=[data])
    return "large"


def fetch_frame(topic: str) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 64 * MIB}
    return request_frame(
        ApiKey.FETCH,
        11,
        max_bytes=64 * MIB,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
    )


@pytest.mark.parametrize("how", ["reset", "close", "half close"])
def test_a_disconnect_in_the_middle_of_a_response_leaks_nothing(
    broker: WatchedBroker, large: str, how: str
) -> None:
    before = broker.descriptor_count()
    for number in range(30):
        client = broker.connect(receive_buffer_bytes=4096)
        client.send(fetch_frame(large) * 3)
        client.read(1 + 700 * number)
        if how == "reset":
            client.reset()
        elif how == "half close":
            client.send_no_more()
            client.read(100)
        client.socket.close()
    broker.wait_descriptors(before)


def test_a_half_closed_client_still_gets_its_responses(broker: WatchedBroker, large: str) -> None:
    with broker.connect() as client:
        client.send(API_VERSIONS + fetch_frame(large) + API_VERSIONS)
        client.send_no_more()
        client.read_response(ApiKey.API_VERSIONS, 0, 0)
        assert len(client.read_frame()) > 8 * MIB
        client.read_response(ApiKey.API_VERSIONS, 0, 0)
        assert client.is_cut_off()


def test_a_disconnect_during_a_waiting_fetch_leaks_nothing(broker: WatchedBroker) -> None:
    before = broker.descriptor_count()
    broker.create_topic("silent")
    frame = request_frame(
        ApiKey.FETCH,
        11,
        max_wait=timedelta(milliseconds=2**31 - 1),
        min_bytes=1,
        max_bytes=MIB,
        session_epoch=-1,
        topics=[{"topic": "silent", "partitions": [{"partition": 0, "partition_max_bytes": MIB}]}],
    )
    for _ in range(100):
        client = broker.connect()
        client.send(API_VERSIONS + frame)
        client.read_frame()
        client.reset()
    broker.wait_descriptors(before + 2)  # for the files of the new topic


# -- many connections --------------------------------------------------------------------------


def test_two_thousand_connections_are_served_in_little_memory(broker: WatchedBroker) -> None:
    before = broker.descriptor_count()
    with enough_descriptors(4_000), broker.growing_less_than(40 * MIB), ExitStack() as leaving:
        clients = [leaving.enter_context(served_client(broker)) for _ in range(2_000)]
        assert broker.descriptor_count() > 2_000
        for client in clients:
            client.send(API_VERSIONS)
        for client in clients:
            client.read_response(ApiKey.API_VERSIONS, 0, 0)
        broker.check()
        assert all(client.is_served() for client in clients[::100])
    broker.wait_descriptors(before)


def served_client(broker: WatchedBroker) -> RawClient:
    """Connects and sends a first request within the time limit."""
    client = broker.connect()
    assert client.is_served()
    return client


@contextmanager
def enough_descriptors(count: int) -> Iterator[None]:
    """Raises the limit of this process; the broker raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this machine allows only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_raises_its_descriptor_limit() -> None:
    """The soft limit is low (1,024 on many machines) and the hard limit is higher."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        broker = penstock.Broker().start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with ExitStack() as leaving:
        leaving.callback(broker.stop)
        for _ in range(400):
            client = leaving.enter_context(RawClient(broker.bootstrap_servers))
            assert client.is_served()
        assert "cannot accept" not in broker.logs()


def test_connection_storms_do_not_stop_the_broker(broker: WatchedBroker) -> None:
    """The clients do not wait to be accepted; some disconnect before."""
    before = broker.descriptor_count()
    host, _, port = broker.servers.rpartition(":")
    for _ in range(scaled(test=20, verify=200, release=2_000)):
        storm = [socket.socket() for _ in range(200)]
        for number, sock in enumerate(storm):
            sock.setblocking(False)
            sock.connect_ex((host, int(port)))
            if number % 3 == 0:
                with suppress(BlockingIOError):
                    sock.send(API_VERSIONS)
        for number, sock in enumerate(storm):
            if number % 3 == 1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
    broker.wait_descriptors(before)


# -- slow senders (last, because their time limits expire during the other tests) -----------------


def test_a_slow_first_request_closes_the_connection(
    broker: WatchedBroker, slow: list[SlowSender]
) -> None:
    lasted = [sender.wait() for sender in slow]
    for seconds in lasted:
        assert seconds is not None
        assert FIRST_REQUEST_S - 0.5 <= seconds < 4 * FIRST_REQUEST_S
    assert "no whole request arrived within its time limit" in broker.logs()


@pytest.mark.skipif(not is_long(), reason="takes half a minute")
def test_a_slow_later_request_closes_the_connection(
    broker: WatchedBroker,
) -> None:
    client = broker.connect()
    assert client.is_served()
    seconds = SlowSender(client, request_frame(ApiKey.METADATA, 5, client_id="x" * 60)).wait()
    assert seconds is not None
    assert LATER_REQUEST_S - 0.5 <= seconds < 4 * LATER_REQUEST_S
