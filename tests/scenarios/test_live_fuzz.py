"""Fuzzed frames over real sockets.

The broker keeps serving, responds or disconnects, and logs no unexpected error.
"""

import itertools
import select
from collections import deque
from collections.abc import Callable

import pytest
from tests.profile import scaled
from tests.scenarios.any_frames import TOPICS, AnyFrame, any_frames
from tests.scenarios.raw_client import CutOff, RawClient
from tests.scenarios.watched_broker import WatchedBroker

from penstock.apis.registry import APIS
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response

pytestmark = pytest.mark.xdist_group("live-fuzz")

FRAMES = scaled(test=1_500, verify=50_000, release=400_000)
SEED = 20
HEALTH_EVERY = 100
PATIENCE_S = 0.02  # after this, the frame counts as waiting or incomplete


class Fuzzer:
    """One connection at a time; a new one when it is closed or stuck."""

    def __init__(self, broker: WatchedBroker) -> None:
        self._broker = broker
        self._client: RawClient | None = None
        self.answered = self.cut_off = self.left = 0

    def try_frame(self, frame: AnyFrame) -> None:
        client = self._client = self._client or self._broker.connect()
        try:
            client.send(frame.data)
            if not select.select([client.socket], [], [], PATIENCE_S)[0]:
                self.left += 1
                self.close()
                return
            response = client.read_frame()
        except CutOff:
            self.cut_off += 1
            self.close()
            return
        self.answered += 1
        if frame.is_whole:
            check_readable(frame, response)

    def close(self) -> None:
        """Sends without waiting for responses."""
        if self._client is not None:
            self._client.reset()
            self._client = None


def check_readable(frame: AnyFrame, response: bytes) -> None:
    correlation_id, body = read_response_header(response, frame.key, frame.version)
    assert correlation_id == frame.correlation_id
    decode_response(frame.key, frame.version, body)


def check_health(broker: WatchedBroker, last: deque[AnyFrame]) -> None:
    try:
        with broker.connect() as client:
            assert client.is_served()
        broker.check_logs()
    except (AssertionError, CutOff, OSError) as error:
        frames = "\n".join(
            f"{frame.key.title} v{frame.version}: {frame.data.hex()}" for frame in last
        )
        raise AssertionError(f"after these frames:\n{frames}") from error


def test_the_broker_keeps_serving_after_fuzzed_frames(
    broker: WatchedBroker, record_figure: Callable[[str, int], None]
) -> None:
    for name in TOPICS:
        broker.create_topic(name, partitions=2)
    fuzzer = Fuzzer(broker)
    last: deque[AnyFrame] = deque(maxlen=HEALTH_EVERY)
    for number, frame in enumerate(itertools.islice(any_frames(SEED), FRAMES), start=1):
        last.append(frame)
        fuzzer.try_frame(frame)
        if number % HEALTH_EVERY == 0:
            check_health(broker, last)
    fuzzer.close()
    record_figure("live frames of any content", FRAMES)
    # If every frame only caused a disconnect, the test would show nothing.
    assert fuzzer.answered > FRAMES / 4
    assert fuzzer.cut_off > FRAMES / 20


def test_the_broker_keeps_serving_after_concurrent_fuzzed_frames(broker: WatchedBroker) -> None:
    """Sends twenty frames at a time, over several connections that close before late responses."""
    frames = any_frames(SEED + 1)
    for _ in range(scaled(test=30, verify=500, release=4_000)):
        clients = [broker.connect() for _ in range(4)]
        for client in clients:
            client.try_send(b"".join(frame.data for frame in itertools.islice(frames, 20)))
        for client in clients[1:]:
            client.socket.settimeout(PATIENCE_S)
            drain(client)
        for number, client in enumerate(clients):
            client.reset() if number % 2 else client.socket.close()
    check_health(broker, deque())


def drain(client: RawClient) -> None:
    """Reads until nothing arrives any more."""
    try:
        while client.socket.recv(1 << 16):
            pass
    except OSError:
        return


def test_the_fuzzed_frames_cover_every_served_version() -> None:
    served = {(key, version) for key, api in APIS.items() for version in api.versions}
    drawn = itertools.islice(any_frames(SEED), len(served))
    assert {(frame.key, frame.version) for frame in drawn} == served
