"""Responses of bytes and file slices: the same bytes by every path, leases released once."""

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.network.harness import LOOPS, Lease, NetworkHarness, framed, serve

from penstock.model.slices import FileRun, FileSlice
from penstock.network.in_flight_request import InFlightRequest, Part
from penstock.network.limits import NetworkLimits
from penstock.network.send_queue import SendPath, SendQueue
from penstock.network.small_slices import COPIED_BYTES, JOINED_GAP_BYTES, SMALL_BYTES

FILE_BYTES = 3_000_000


@pytest.fixture(name="content", scope="module")
def _content() -> bytes:
    return random.Random(1).randbytes(FILE_BYTES)


@pytest.fixture(name="file")
def _file(tmp_path: Path, content: bytes) -> Iterator[int]:
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def bytes_of(parts: list[Part], content: bytes) -> bytes:
    """Return the parts' bytes by plain slicing."""
    whole = b""
    for part in parts:
        if isinstance(part, FileRun):
            for _, position, length in part.slices:
                whole += content[position : position + length]
        else:
            whole += bytes(part)
    return whole


def random_parts(source: random.Random, fd: int) -> list[Part]:
    parts: list[Part] = []
    for _ in range(source.randint(1, 6)):
        kind = source.randrange(5)
        size = source.choice((0, 1, 20, 5000, SMALL_BYTES, SMALL_BYTES + 1, 300_000))
        if kind == 0:
            parts.append(source.randbytes(size))
        elif kind == 1:
            parts.append(memoryview(source.randbytes(size + 7))[7:])
        elif kind == 2:
            parts.append(bytearray(source.randbytes(size)))
        elif kind == 3:
            parts.append(FileRun(tuple(neighbours(source, fd))))
        else:
            positions = [source.randrange(FILE_BYTES - size) for _ in range(source.randint(0, 4))]
            parts.append(FileRun(tuple(FileSlice(fd, at, size) for at in positions)))
    return parts


def neighbours(source: random.Random, fd: int) -> Iterator[FileSlice]:
    """As a read of a commit log has them: mostly small, near one another, in another file too."""
    position = source.randrange(FILE_BYTES // 2)
    for _ in range(source.randrange(300)):
        size = source.choice((0, 1, 300, 1000, 1000, 1000, SMALL_BYTES + 1))
        if position + size > FILE_BYTES:
            return
        yield FileSlice(fd, position, size)
        position += size + source.choice((0, 32, 5000, JOINED_GAP_BYTES, JOINED_GAP_BYTES + 1))


def test_neighbouring_small_slices_are_one_entry(file: int) -> None:
    slices = tuple(FileSlice(file, number * 3000, 900) for number in range(70))
    send_queue = SendQueue(SendPath.SENDFILE)
    send_queue.add([b"head", FileRun(slices)], None)
    assert len(send_queue.entries) == 2
    assert send_queue.unsent_bytes == len(b"head")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", SendPath)
def test_mixed_responses_are_the_same_bytes_by_every_send_path(
    loop: str, path: SendPath, file: int, content: bytes
) -> None:
    source = random.Random(11)
    replies = [random_parts(source, file) for _ in range(40)]
    leases = [Lease() for _ in replies]
    expected = b"".join(bytes_of(parts, content) for parts in replies)

    def on_request(request: InFlightRequest) -> None:
        number = int(bytes(request.frame))
        request.reply(replies[number], leases[number])

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect(receive_bytes=50_000)
        await client.send(b"".join(framed(b"%d" % number) for number in range(len(replies))))
        assert await client.read(len(expected)) == expected
        await serving.until(lambda: all(lease.released for lease in leases))
        client.sock.close()
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert [lease.released for lease in leases] == [1] * len(leases)
        assert serving.server.statistics().sent_bytes == len(expected)

    serve(scenario, loop=loop, on_request=on_request, send_path=path)


class CountingSocket(socket.socket):
    calls = 0

    def sendmsg(self, *arguments: Any) -> int:
        self.calls += 1
        return super().sendmsg(*arguments)


def test_small_slices_are_sent_together_with_bounded_memory(file: int, content: bytes) -> None:
    """A fetch of many partitions: only the slices sent in one iteration are copied."""
    sending, theirs = socket.socketpair()
    ours = CountingSocket(fileno=sending.detach())
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    parts: list[Part] = []
    for number in range(1000):
        parts += [b"head", FileRun((FileSlice(file, number * 1000, 1000),))]
    send_queue = SendQueue(SendPath.SENDFILE)
    send_queue.add(parts, None)
    with ours, theirs:
        ours.setblocking(False)
        assert send_queue.send(ours, 20_000) == 20_000
        assert ours.calls == 1
        assert send_queue.unsent_bytes < 1000 * 4 + COPIED_BYTES
        assert theirs.recv(1 << 20) == bytes_of(parts, content)[:20_000]


@pytest.mark.parametrize("path", SendPath)
def test_a_lease_is_held_until_the_last_byte_was_sent(path: SendPath, file: int) -> None:
    lease = Lease()

    def on_request(request: InFlightRequest) -> None:
        run = FileRun((FileSlice(file, 0, FILE_BYTES),))
        request.reply([b"head", run, run, run, run, run, b"tail"], lease)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect(receive_bytes=50_000)
        await client.send_frame(b"x")
        await serving.until(lambda: serving.server.statistics().sent_bytes > 0)
        await client.read(4 + 2 * FILE_BYTES)
        assert lease.released == 0
        await client.read(3 * FILE_BYTES + 4)
        await serving.until(lambda: lease.released == 1)

    serve(scenario, on_request=on_request, send_path=path)


@pytest.mark.parametrize("path", SendPath)
def test_a_reset_within_a_response_releases_the_lease(path: SendPath, file: int) -> None:
    leases = [Lease(), Lease()]

    def on_request(request: InFlightRequest) -> None:
        lease = leases[int(bytes(request.frame))]
        request.reply([b"head", FileRun((FileSlice(file, 0, FILE_BYTES),) * 5), b"tail"], lease)

    async def scenario(serving: NetworkHarness) -> None:
        neighbour = await serving.connect()
        client = await serving.connect(receive_bytes=50_000)
        await client.send(framed(b"0") + framed(b"1"))
        await client.read(100_000)
        assert [lease.released for lease in leases] == [0, 0]
        client.reset()
        await serving.until(lambda: serving.server.statistics().connections == 1)
        assert [lease.released for lease in leases] == [1, 1]
        leases.append(Lease())
        await neighbour.send_frame(b"2")
        assert len(await neighbour.read(8 + 5 * FILE_BYTES)) == 8 + 5 * FILE_BYTES
        assert serving.reports == []

    serve(scenario, on_request=on_request, send_path=path)


@pytest.mark.parametrize("path", SendPath)
@pytest.mark.parametrize("cut_at", [0, 1_000_000])
def test_a_truncated_file_closes_the_connection(
    path: SendPath, cut_at: int, file: int, content: bytes
) -> None:
    """The response's size was sent already, so nothing else may follow."""
    lease = Lease()

    def on_request(request: InFlightRequest) -> None:
        request.reply([b"head", FileRun((FileSlice(file, 0, FILE_BYTES),)), b"tail"], lease)
        os.ftruncate(file, cut_at)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"x")
        received = await client.read(FILE_BYTES + 8)
        assert len(received) < FILE_BYTES + 4
        assert (b"head" + content[:cut_at]).startswith(received)
        assert lease.released == 1
        statistics = serving.server.statistics()
        assert (statistics.connections, statistics.truncated_files) == (0, 1)

    serve(scenario, on_request=on_request, send_path=path)


@pytest.mark.parametrize("path", SendPath)
def test_a_file_truncated_while_sending_closes_the_connection(path: SendPath, file: int) -> None:
    lease = Lease()

    def on_request(request: InFlightRequest) -> None:
        request.reply([FileRun((FileSlice(file, 0, FILE_BYTES),) * 3)], lease)

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect(receive_bytes=50_000)
        await client.send_frame(b"x")
        await client.read(50_000)
        os.ftruncate(file, 4096)
        assert len(await client.read(3 * FILE_BYTES)) < 3 * FILE_BYTES - 50_000
        assert lease.released == 1
        assert serving.server.statistics().truncated_files == 1

    serve(scenario, on_request=on_request, send_path=path)


def test_a_file_closed_under_its_lease_is_reported_and_closes_the_connection(
    tmp_path: Path,
) -> None:
    """It is a bug to close a file under a lease."""
    (tmp_path / "file").write_bytes(bytes(100))
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    os.close(fd)

    def on_request(request: InFlightRequest) -> None:
        request.reply([b"head", FileRun((FileSlice(9_999, 0, 100),))])

    async def scenario(serving: NetworkHarness) -> None:
        client = await serving.connect()
        await client.send_frame(b"x")
        await serving.until(lambda: serving.server.statistics().connections == 0)
        assert "Bad file descriptor" in serving.reports[0]

    serve(scenario, on_request=on_request)


def test_one_iteration_sends_a_bounded_number_of_bytes() -> None:
    """So another connection's response does not wait for all of a large one."""
    limits = NetworkLimits(send_turn_bytes=64 * 1024)
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        send_queue = SendQueue(SendPath.SENDFILE)
        send_queue.add([bytes(1_000_000), b"end"], None)
        assert send_queue.send(ours, limits.send_turn_bytes) == limits.send_turn_bytes
        assert send_queue.unsent_bytes == 1_000_003
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("path", SendPath)
def test_small_responses_are_sent_between_parts_of_large_ones(path: SendPath, file: int) -> None:
    """Four clients read a lot, and one reads little: its responses keep coming."""

    def on_request(request: InFlightRequest) -> None:
        if bytes(request.frame) == b"small":
            request.reply([framed(b"small")])
        else:
            request.reply([FileRun((FileSlice(file, 0, FILE_BYTES),) * 10)])

    async def scenario(serving: NetworkHarness) -> None:
        readers = [await serving.connect() for _ in range(4)]
        small = await serving.connect()
        for reader in readers:
            await reader.send_frame(b"large")
        reading = [asyncio.create_task(reader.read(10 * FILE_BYTES)) for reader in readers]
        between = 0
        while not all(task.done() for task in reading):
            assert await small.ask(b"small") == b"small"
            between += 1
        # If large responses were sent whole, at most one small one would come between two of them.
        assert between > 12
        assert [len(await task) for task in reading] == [10 * FILE_BYTES] * 4

    serve(scenario, on_request=on_request, send_path=path)


def test_the_send_queue_counts_its_memory_and_releases_unsent_leases() -> None:
    send_queue = SendQueue(SendPath.SENDFILE)
    leases = [Lease() for _ in range(4)]
    send_queue.add([b"abc", FileRun((FileSlice(1, 0, 10**9),)), bytearray(5)], leases[0])
    send_queue.add([], leases[1])
    send_queue.add([b"", FileRun(())], leases[2])
    send_queue.add([memoryview(b"xy")], leases[3])
    assert send_queue.unsent_bytes == 10
    assert [lease.released for lease in leases] == [0, 1, 1, 0]
    send_queue.clear()
    send_queue.clear()
    assert send_queue.unsent_bytes == 0
    assert [lease.released for lease in leases] == [1, 1, 1, 1]
