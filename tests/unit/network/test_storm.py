"""Clients of every kind at once: good ones are served in order, and nothing leaks."""

import asyncio
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.profile import scaled
from tests.unit.network.harness import LOOPS, Client, Lease, NetworkHarness, framed, serve

from penstock.model.slices import FileRun, FileSlice
from penstock.network.in_flight_request import InFlightRequest, Part
from penstock.network.limits import MIB, NetworkLimits
from penstock.network.send_queue import SendPath
from penstock.protocol.malformed import MalformedRequest

FILE_BYTES = 400_000
LIMITS = NetworkLimits(max_request_bytes=MIB, receive_budget_bytes=3 * MIB, max_unanswered=8)


class Tracked:
    """A request in flight, and how it ended."""

    def __init__(self, request: InFlightRequest, body: bytes) -> None:
        self.request = request
        self.body = body
        self.lease = Lease()
        self.ends = 0  # responses and disconnects


class Handler:
    """Responds with the request and a slice of a file, at once or later, sometimes pipelined."""

    def __init__(self, source: random.Random, fd: int) -> None:
        self._source = source
        self._fd = fd
        self.all: list[Tracked] = []
        self.parked: list[Tracked] = []

    def on_request(self, request: InFlightRequest) -> None:
        body = bytes(request.frame)
        if body.startswith(b"bad"):
            raise MalformedRequest("a bad one")
        tracked = Tracked(request, body)
        self.all.append(tracked)
        if self._source.random() < 0.5:
            self.answer(tracked)
            return
        self.parked.append(tracked)
        request.on_close(lambda: self._give_up(tracked))
        if self._source.random() < 0.7:
            request.let_next_start()

    def answer(self, tracked: Tracked) -> None:
        tracked.ends += 1
        length = len(tracked.body) % FILE_BYTES
        parts: list[Part] = [
            struct.pack(">i", len(tracked.body) + length),
            tracked.body,
            FileRun((FileSlice(self._fd, 0, length),)),
        ]
        tracked.request.reply(parts, tracked.lease)

    def _give_up(self, tracked: Tracked) -> None:
        tracked.ends += 1
        self.parked.remove(tracked)

    async def respond_to_parked(self) -> None:
        """Respond to delayed requests in random order, forever."""
        while True:
            await asyncio.sleep(0.0005)
            for _ in range(min(len(self.parked), 5)):
                self.answer(self.parked.pop(self._source.randrange(len(self.parked))))


async def behave(client: Client, source: random.Random, content: bytes) -> None:
    """Send ten requests, some at once; each response is the request and the start of the file."""
    bodies = [source.randbytes(source.choice((1, 50, 5_000, 300_000))) for _ in range(10)]
    async with asyncio.TaskGroup() as group:
        group.create_task(client.send(b"".join(map(framed, bodies))))
        for body in bodies:
            assert await client.read_frame() == body + content[: len(body) % FILE_BYTES]


async def misbehave(client: Client, source: random.Random) -> None:
    """Send something, perhaps read something, and disconnect in one way or another."""
    kind = source.randrange(5)
    try:
        if kind == 0:
            await client.send(struct.pack(">i", source.choice((-1, 0, 2**31 - 1))) + b"x" * 100)
        elif kind == 1:
            await client.send(framed(bytes(MIB))[: source.randrange(MIB)])
        elif kind == 2:
            await client.send(framed(b"fine" * 1000) * 3 + framed(b"bad"))
        else:
            await client.send(framed(source.randbytes(200_000)) * 6)
            await client.read(source.randrange(100_000))
    except ConnectionError:
        pass  # the server closed the connection
    if source.random() < 0.5:
        client.reset()
    else:
        client.sock.close()


@pytest.fixture(name="content", scope="module")
def _content() -> bytes:
    return random.Random(5).randbytes(FILE_BYTES)


@pytest.fixture(name="file")
def _file(tmp_path: Path, content: bytes) -> Iterator[int]:
    (tmp_path / "file").write_bytes(content)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", SendPath)
@pytest.mark.parametrize("seed", range(scaled(test=1, verify=20, release=200)))
def test_good_clients_are_served_among_bad_ones_and_nothing_leaks(
    loop: str, path: SendPath, seed: int, file: int, content: bytes
) -> None:
    source = random.Random(seed)
    handler = Handler(source, file)

    async def scenario(serving: NetworkHarness) -> None:
        answering = asyncio.create_task(handler.respond_to_parked())
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                client = await serving.connect(receive_bytes=source.choice((4096, 100_000)))
                group.create_task(behave(client, random.Random(source.random()), content))
                for _ in range(2):
                    client = await serving.connect()
                    group.create_task(misbehave(client, random.Random(source.random())))
        serving.close_clients()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        answering.cancel()
        statistics = serving.server.statistics()
        assert statistics.accepted == 36
        assert (statistics.unexpected_errors, statistics.truncated_files) == (0, 0)
        assert (statistics.receive_buffer_bytes, statistics.waiting_for_memory) == (0, 0)
        assert {tracked.ends for tracked in handler.all} == {1}
        answered = [tracked for tracked in handler.all if tracked.request.is_answered]
        assert {tracked.lease.released for tracked in answered} == {1}

    serve(scenario, loop=loop, on_request=handler.on_request, send_path=path, limits=LIMITS)
