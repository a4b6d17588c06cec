"""Clients that do not read, do not finish, leave in the middle or come in thousands."""

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

# With Kafka's default of 50, who comes while others do is let in a second later.
SETTINGS = {"socket.listen.backlog.size": 4096}
FIRST_REQUEST_S = 10  # until it has to be whole
LATER_REQUEST_S = 30
API_VERSIONS = request_frame(ApiKey.API_VERSIONS, 0)


class SlowSender:
    """Sends some bytes, one a second, and then no more; notes when it is cut off."""

    def __init__(self, client: RawClient, data: bytes) -> None:
        self._client = client
        self._data = data
        self._lasted_s: float | None = None  # None: it was answered instead
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
    """Begun before the other tests, so that their time passes meanwhile."""
    frame = request_frame(ApiKey.API_VERSIONS, 0, client_id="x" * 60)
    return [SlowSender(watched.connect(), data) for data in (frame, frame[:20], b"")]


@pytest.fixture(autouse=True)
def _slow_beside(slow: object) -> None:
    """Every test of this module has them beside it."""


# -- who does not read -------------------------------------------------------------------------


def test_ten_thousand_requests_at_once_are_answered_in_order_when_somebody_reads(
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
            client.read_reply(ApiKey.API_VERSIONS, 0, number)
        sender.join()
        assert client.is_served()


def wait_until_stuck(client: RawClient) -> None:
    """Until the broker has answered as much as it can: nothing new arrives to be read."""
    arrived = -1
    while (now := len(client.socket.recv(MIB, socket.MSG_PEEK))) > arrived:
        arrived = now
        time.sleep(0.1)


def test_replies_that_nobody_reads_cost_a_bounded_memory(broker: WatchedBroker) -> None:
    """Each reply is made in memory, 5 KB of it; forty clients ask for a thousand each."""
    broker.create_topic("wide", partitions=200)
    asked = request_frame(ApiKey.METADATA, 5, topics=[{"name": "wide"}]) * 1000
    with ExitStack() as clients, broker.growing_less_than(80 * MIB):
        senders = []
        for _ in range(40):
            client = clients.enter_context(broker.connect(receive_buffer_bytes=4096))
            sender = threading.Thread(target=client.try_send, args=(asked,))
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
def test_who_leaves_in_the_middle_of_a_reply_leaves_nothing_open(
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


def test_who_sends_no_more_still_gets_its_replies(broker: WatchedBroker, large: str) -> None:
    with broker.connect() as client:
        client.send(API_VERSIONS + fetch_frame(large) + API_VERSIONS)
        client.send_no_more()
        client.read_reply(ApiKey.API_VERSIONS, 0, 0)
        assert len(client.read_frame()) > 8 * MIB
        client.read_reply(ApiKey.API_VERSIONS, 0, 0)
        assert client.is_cut_off()


def test_who_leaves_while_its_fetch_waits_is_forgotten(broker: WatchedBroker) -> None:
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
    broker.wait_descriptors(before + 2)  # of the new topic


# -- who comes in thousands --------------------------------------------------------------------


def test_two_thousand_connections_are_served_and_cost_little(broker: WatchedBroker) -> None:
    before = broker.descriptor_count()
    with enough_descriptors(4_000), broker.growing_less_than(40 * MIB), ExitStack() as leaving:
        clients = [leaving.enter_context(served_client(broker)) for _ in range(2_000)]
        assert broker.descriptor_count() > 2_000
        for client in clients:
            client.send(API_VERSIONS)
        for client in clients:
            client.read_reply(ApiKey.API_VERSIONS, 0, 0)
        broker.check()
        assert all(client.is_served() for client in clients[::100])
    broker.wait_descriptors(before)


def served_client(broker: WatchedBroker) -> RawClient:
    """One that was in time with its first request, however many follow."""
    client = broker.connect()
    assert client.is_served()
    return client


@contextmanager
def enough_descriptors(count: int) -> Iterator[None]:
    """For this process; the broker looks after its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this machine allows only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_takes_all_descriptors_that_it_may() -> None:
    """Where the usual limit is low (1,024 on many machines) and more is allowed."""
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


def test_storms_of_connections_pass(broker: WatchedBroker) -> None:
    """They do not wait to be let in: some never are, and some have left before."""
    before = broker.descriptor_count()
    host, _, port = broker.servers.rpartition(":")
    for _ in range(scaled(test=20, verify=200, release=2_000)):
        storm = [socket.socket() for _ in range(200)]
        for number, each in enumerate(storm):
            each.setblocking(False)
            each.connect_ex((host, int(port)))
            if number % 3 == 0:
                with suppress(BlockingIOError):
                    each.send(API_VERSIONS)
        for number, each in enumerate(storm):
            if number % 3 == 1:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
    broker.wait_descriptors(before)


# -- who is slow (last: their time passes beside the others) -----------------------------------


def test_a_first_request_that_does_not_arrive_in_time_is_not_waited_for(
    broker: WatchedBroker, slow: list[SlowSender]
) -> None:
    lasted = [sender.wait() for sender in slow]
    for seconds in lasted:
        assert seconds is not None
        assert FIRST_REQUEST_S - 0.5 <= seconds < 4 * FIRST_REQUEST_S
    assert "no whole request arrived within its time limit" in broker.logs()


@pytest.mark.skipif(not is_long(), reason="takes half a minute")
def test_a_later_request_that_does_not_arrive_in_time_is_not_waited_for(
    broker: WatchedBroker,
) -> None:
    client = broker.connect()
    assert client.is_served()
    seconds = SlowSender(client, request_frame(ApiKey.METADATA, 5, client_id="x" * 60)).wait()
    assert seconds is not None
    assert LATER_REQUEST_S - 0.5 <= seconds < 4 * LATER_REQUEST_S
