"""The memory for incomplete requests, with many receive buffers fed at random. No sockets."""

import random
import struct
from collections import Counter
from typing import cast

import pytest
from tests.profile import scaled

from penstock.network.receive_buffer import ReceiveBuffer
from penstock.network.receive_memory import (
    SHARED_BYTES,
    SMALL_BYTES,
    SMALL_FRAME_BYTES,
    ReceiveMemory,
)

MAX_FRAME = 1_000_000
HERE = "10.0.0.1"
ROUNDING_BYTES = 128 * 1024


class FakeSocket:
    """A fake socket with bytes that have arrived, and more to come."""

    def __init__(self, frames: list[bytes]) -> None:
        stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        self.left = memoryview(stream)
        self.arrived = 0

    def recv_into(self, buffer: memoryview, nbytes: int = 0) -> int:
        assert len(buffer), "a real socket would return 0, which means the end of the stream"
        count = min(nbytes or len(buffer), self.arrived, len(self.left))
        if not count:
            raise BlockingIOError
        buffer[:count] = self.left[:count]
        self.left = self.left[count:]
        self.arrived -= count
        return count


class Reader:
    """A connection as far as its receive buffer is concerned."""

    def __init__(self, memory: ReceiveMemory, frames: list[bytes], host: str = "127.0.0.1") -> None:
        self.feed = FakeSocket(frames)
        self.taken: list[bytes] = []
        self.can_read = True
        self.is_blocked = False
        self.receive_buffer = ReceiveBuffer(
            memory,
            host=host,
            max_frame_bytes=MAX_FRAME,
            check_frame=lambda api_key, size: None,
            on_memory=self._resume,
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
    little = (1, 1000, SMALL_BYTES - 4, SMALL_BYTES, 16_384, 40_000, SMALL_FRAME_BYTES - 4)
    sizes = (*little, SMALL_FRAME_BYTES, 200_000, 700_000, MAX_FRAME)
    return [source.randbytes(source.choice(sizes)) for _ in range(source.randint(1, 4))]


@pytest.mark.parametrize("seed", range(scaled(test=6, verify=100, release=1000)))
def test_memory_is_bounded_and_every_frame_arrives(seed: int) -> None:
    source = random.Random(seed)
    total_bytes = source.choice((2_000_000, 5_000_000))
    memory = ReceiveMemory(total_bytes=total_bytes, max_request_bytes=MAX_FRAME)
    sent = [make_frames(source) for _ in range(30)]
    readers = [Reader(memory, frames, source.choice("abc")) for frames in sent]
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


def begin_large_frames(memory: ReceiveMemory, count: int, host: str) -> list[Reader]:
    """Readers whose frames will never be complete; nearly all of them wait for memory."""
    readers = [Reader(memory, [bytes(900_000)], host) for _ in range(count)]
    for reader in readers:
        reader.feed.arrived = 800_000
    for _ in range(20):
        for reader in readers:
            reader.step()
    assert memory.waiting_count >= count // 2
    return readers


@pytest.mark.parametrize("size", [SMALL_BYTES, 16_384, SMALL_FRAME_BYTES - 4])
def test_a_small_frame_does_not_wait_behind_large_ones_of_its_address(size: int) -> None:
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=MAX_FRAME)
    begin_large_frames(memory, 30, "a")
    waiting_count = memory.waiting_count
    reader = Reader(memory, [bytes(size)] * 5, "a")
    reader.feed.arrived = 1_000_000
    while reader.feed.left:
        before = len(reader.feed.left)
        reader.step()
        assert len(reader.feed.left) < before, "it waits"
    assert reader.taken == [bytes(size)] * 5
    assert memory.waiting_count == waiting_count


def test_more_is_received_behind_a_frame_that_was_put_back() -> None:
    """The frame waits for its turn in a buffer that is larger than it and from the reserve."""
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=MAX_FRAME)
    begin_large_frames(memory, 30, "a")
    frames = [bytes([number]) * 10_000 for number in range(3)]
    reader = Reader(memory, frames, "a")
    receive_buffer = reader.receive_buffer
    for _ in range(3):
        reader.feed.arrived += 6_000
        reader.step()
    assert memory.uses_reserve(receive_buffer)
    while (frame := receive_buffer.take_frame()) is None:
        assert receive_buffer.finish_turn(wants_more=True, may_wait=True)
        reader.feed.arrived += 6_000
        receive_buffer.receive(cast("object", reader.feed))  # type: ignore[arg-type]
    receive_buffer.put_back(frame)
    assert receive_buffer.finish_turn(wants_more=True, may_wait=False), "it has room"
    size = receive_buffer.size
    reader.feed.arrived += 500
    receive_buffer.receive(cast("object", reader.feed))  # type: ignore[arg-type]
    assert receive_buffer.size > size
    reader.feed.arrived += len(reader.feed.left)
    while reader.feed.left:
        reader.step()
    assert reader.taken == frames


def test_a_proven_connection_does_not_wait_behind_other_small_frames() -> None:
    """Others of its address hold as many as they may: they wait for bytes or for their turn."""
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=MAX_FRAME)
    begin_large_frames(memory, 30, "a")
    others = [Reader(memory, [bytes(60_000)], "a") for _ in range(30)]
    for _ in range(20):
        for other in others:
            other.feed.arrived += 500
            other.step()
    proven = Reader(memory, [bytes(16_384)] * 5, "a")
    proven.receive_buffer.is_proven = True
    proven.feed.arrived = 1_000_000
    waiting_count = memory.waiting_count
    for _ in range(30):
        proven.step()
    assert len(proven.taken) == 5
    assert memory.waiting_count == waiting_count > 30


def test_small_frames_wait_for_each_other_and_not_for_ever() -> None:
    """More of them than their reserve holds, beside large ones that never end."""
    memory = ReceiveMemory(total_bytes=2_000_000, max_request_bytes=MAX_FRAME)
    begin_large_frames(memory, 10, "a")
    readers = [Reader(memory, [bytes(60_000)], "a") for _ in range(20)]
    for share in (30_000, 100_000):
        for reader in readers:
            reader.feed.arrived += share
        for _ in range(50):
            for reader in readers:
                reader.step()
    assert [len(reader.taken) for reader in readers] == [1] * 20


def test_addresses_take_turns_for_large_frames() -> None:
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=MAX_FRAME)
    crowd = begin_large_frames(memory, 30, "a")
    neighbour = Reader(memory, [bytes(900_000)], "b")
    neighbour.feed.arrived = 1_000_000
    neighbour.step()
    for reader in crowd:  # they finish, one after the other
        if neighbour.taken:
            break
        reader.feed.arrived += 1_000_000
        while reader.can_read and reader.feed.left:
            reader.step()
        while neighbour.can_read and neighbour.feed.left:
            neighbour.step()
    assert len(neighbour.taken) == 1
    assert sum(len(reader.taken) for reader in crowd) < 10, "most of the others come later"


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


@pytest.mark.parametrize("parts", [[1, 2, 1, 1, 2, 2], [2, 1, 1, 2]])
def test_a_spare_buffer_is_kept_while_frames_come_in_parts(parts: list[int]) -> None:
    """A connection whose frames come whole uses the shared memory again, which is cheaper."""
    memory = ReceiveMemory(total_bytes=4_000_000, max_request_bytes=MAX_FRAME)
    reader = Reader(memory, [bytes(16_384)] * len(parts))
    for frame, count in enumerate(parts, start=1):
        for part in range(count):
            reader.feed.arrived = 100 if part else 16_384 + 4 - 100 * (count - 1)
            reader.step()
        assert len(reader.taken) == frame
        assert bool(reader.receive_buffer.capacity) == (count > 1)


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
    first = memory.try_keep(HERE, 10 * MAX_FRAME)
    assert first is not None
    assert memory.held_bytes == 10 * MAX_FRAME
    assert memory.try_keep(HERE, 1) is None
    first.release()
    # Half of twice SHARED_BYTES, for addresses that have none.
    small = [memory.try_keep(f"10.0.0.{number}", SHARED_BYTES // 2) for number in range(5)]
    assert [kept is not None for kept in small] == [True] * 2 + [False] * 3


def test_an_address_with_many_copies_leaves_memory_for_those_of_others() -> None:
    memory = ReceiveMemory(total_bytes=100_000_000, max_request_bytes=MAX_FRAME)
    of_one = [memory.try_keep(HERE, 1_000_000) for _ in range(100)]
    held = [kept for kept in of_one if kept is not None]
    of_other = [memory.try_keep("10.0.0.2", 1_000_000) for _ in range(100)]
    others = [kept for kept in of_other if kept is not None]
    assert len(held) > 15
    assert len(others) > len(held) // 3
    assert memory.try_keep("10.0.0.3", 1_000_000) is not None
    for kept in held + others:
        kept.release()
    again = [memory.try_keep(HERE, 1_000_000) for _ in range(100)]
    assert len([kept for kept in again if kept is not None]) >= len(held) - 1


def test_readers_continue_one_by_one_while_copies_hold_the_memory() -> None:
    memory = ReceiveMemory(total_bytes=2_000_000, max_request_bytes=MAX_FRAME)
    kept = memory.try_keep(HERE, 50_000_000)
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
