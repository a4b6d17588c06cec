"""The memory for incomplete requests, with many receive buffers fed at random. No sockets."""

import random
import struct
from collections import Counter
from typing import cast

import pytest
from tests.profile import scaled

from penstock.network.receive_buffer import ReceiveBuffer
from penstock.network.receive_memory import SHARED_BYTES, SMALL_BYTES, ReceiveMemory

MAX_FRAME = 1_000_000
ROUNDING_BYTES = 128 * 1024


class FakeSocket:
    """A fake socket with bytes that have arrived, and more to come."""

    def __init__(self, frames: list[bytes]) -> None:
        stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        self.left = memoryview(stream)
        self.arrived = 0

    def recv_into(self, buffer: memoryview, nbytes: int = 0) -> int:
        count = min(nbytes or len(buffer), self.arrived, len(self.left))
        if not count:
            raise BlockingIOError
        buffer[:count] = self.left[:count]
        self.left = self.left[count:]
        self.arrived -= count
        return count


class Reader:
    """A connection as far as its receive buffer is concerned."""

    def __init__(self, memory: ReceiveMemory, frames: list[bytes]) -> None:
        self.feed = FakeSocket(frames)
        self.taken: list[bytes] = []
        self.can_read = True
        self.is_blocked = False
        self.receive_buffer = ReceiveBuffer(
            memory, max_frame_bytes=MAX_FRAME, on_memory=self._resume
        )

    def _resume(self) -> None:
        assert not self.can_read
        self.can_read = True

    def step(self) -> None:
        if self.can_read and not self.is_blocked:
            try:
                self.receive_buffer.receive(cast("object", self.feed))  # type: ignore[arg-type]
            except BlockingIOError:
                return
        while not self.is_blocked and (frame := self.receive_buffer.take_frame()) is not None:
            self.taken.append(bytes(frame))
        if self.can_read or not self.is_blocked:
            self.can_read = self.receive_buffer.finish_turn(
                wants_more=not self.is_blocked, may_wait=not self.is_blocked
            )


def make_frames(source: random.Random) -> list[bytes]:
    sizes = (1, 1000, SMALL_BYTES - 4, SMALL_BYTES, 200_000, 700_000, MAX_FRAME)
    return [source.randbytes(source.choice(sizes)) for _ in range(source.randint(1, 4))]


@pytest.mark.parametrize("seed", range(scaled(test=6, verify=100, release=1000)))
def test_memory_is_bounded_and_every_frame_arrives(seed: int) -> None:
    source = random.Random(seed)
    total_bytes = source.choice((2_000_000, 5_000_000))
    memory = ReceiveMemory(total_bytes=total_bytes, max_request_bytes=MAX_FRAME)
    sent = [make_frames(source) for _ in range(30)]
    readers = [Reader(memory, frames) for frames in sent]
    bound = max(total_bytes, MAX_FRAME + ROUNDING_BYTES + 2 * SHARED_BYTES)
    while any(reader.feed.left for reader in readers):
        reader = source.choice(readers)
        reader.feed.arrived += source.choice((1, 4, 5000, 100_000, 400_000))
        reader.step()
        held = sum(reader.receive_buffer.capacity for reader in readers)
        assert memory.held_bytes == held
        assert held <= bound + len(readers) * SMALL_BYTES
    assert [reader.taken for reader in readers] == sent
    assert memory.waiting_count == 0
    for reader in readers:
        reader.receive_buffer.close()
    assert memory.held_bytes == 0


@pytest.mark.parametrize("seed", range(scaled(test=6, verify=100, release=1000)))
def test_a_connection_closed_within_a_frame_frees_its_memory(seed: int) -> None:
    source = random.Random(seed)
    memory = ReceiveMemory(total_bytes=2_000_000, max_request_bytes=MAX_FRAME)
    sent = [make_frames(source) for _ in range(30)]
    readers = [Reader(memory, frames) for frames in sent]
    stays = list(zip(readers, sent, strict=True))
    while any(reader.feed.left for reader, _ in stays):
        number = source.randrange(len(stays))
        reader = stays[number][0]
        if source.random() < 0.01 and len(stays) > 5:
            reader.receive_buffer.close()
            del stays[number]
            continue
        reader.feed.arrived += source.choice((5000, 100_000, 400_000))
        reader.step()
        assert memory.held_bytes == sum(stay.receive_buffer.capacity for stay, _ in stays)
    assert all(reader.taken == frames for reader, frames in stays)


def test_a_buffer_grows_once_for_frames_of_one_size() -> None:
    """Later frames stay in the buffer that the first one grew."""
    memory = ReceiveMemory(total_bytes=50_000_000, max_request_bytes=MAX_FRAME)
    body = bytes(MAX_FRAME)
    reader = Reader(memory, [body] * 10)
    capacities: Counter[int] = Counter()
    while reader.feed.left:
        reader.feed.arrived += 150_000
        reader.step()
        capacities[reader.receive_buffer.capacity] += 1
    assert len(reader.taken) == 10
    largest = max(capacities)
    assert MAX_FRAME < largest < MAX_FRAME + ROUNDING_BYTES
    # The buffer grew within the first of ten frames.
    assert capacities[largest] > 0.9 * capacities.total() - 7


def test_spare_buffers_are_dropped_before_a_connection_waits() -> None:
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=MAX_FRAME)
    idle = [Reader(memory, [bytes(900_000)]) for _ in range(3)]
    for reader in idle:
        reader.feed.arrived = 1_000_000
        while reader.feed.left:
            reader.step()
    assert memory.held_bytes > 1_500_000
    busy = Reader(memory, [bytes(900_000)] * 2)
    busy.feed.arrived = 10_000_000
    while busy.feed.left:
        busy.step()
        assert memory.waiting_count == 0
    assert not memory.is_favoured(busy.receive_buffer)
    assert len(busy.taken) == 2


def test_copies_count_and_one_is_always_possible() -> None:
    memory = ReceiveMemory(total_bytes=0, max_request_bytes=MAX_FRAME)
    first = memory.try_keep(10 * MAX_FRAME)
    assert first is not None
    assert memory.held_bytes == 10 * MAX_FRAME
    assert memory.try_keep(1) is None
    first.release()
    small = [memory.try_keep(SHARED_BYTES // 2) for _ in range(5)]  # of twice SHARED_BYTES in all
    assert [kept is not None for kept in small] == [True] * 4 + [False]


def test_readers_continue_one_by_one_while_copies_hold_the_memory() -> None:
    memory = ReceiveMemory(total_bytes=2_000_000, max_request_bytes=MAX_FRAME)
    kept = memory.try_keep(50_000_000)
    readers = [Reader(memory, [bytes(900_000)]) for _ in range(3)]
    for reader in readers:
        reader.feed.arrived = 1_000_000
    while any(reader.feed.left for reader in readers):
        for reader in readers:
            reader.step()
    assert [len(reader.taken) for reader in readers] == [1, 1, 1]
    assert kept is not None
    kept.release()
    assert memory.waiting_count == 0
