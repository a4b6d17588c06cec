import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.receiver import FrameReceiver
from penstock.protocol.frames import FrameSizeRefused

MIB = 1024 * 1024


def feed(receiver: FrameReceiver, data: bytes, pieces: list[int]) -> None:
    """Feed data as a socket does, never more than the buffer has room for."""
    position, turn = 0, 0
    while position < len(data):
        room = receiver.get_buffer()
        count = min(len(room), len(data) - position, pieces[turn % len(pieces)])
        room[:count] = data[position : position + count]
        receiver.take(count)
        position, turn = position + count, turn + 1


@given(
    sizes=st.lists(st.one_of(st.integers(1, 200), st.integers(65_000, 70_000)), max_size=8),
    pieces=st.lists(st.integers(1, 80_000), min_size=1, max_size=5),
)
def test_frames_are_whole_however_the_bytes_arrive(sizes: list[int], pieces: list[int]) -> None:
    # Only a few one-byte pieces: it matters where pieces end, not how many there are.
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    got: list[bytes] = []
    receiver = FrameReceiver(lambda frame: got.append(bytes(frame)), max_bytes=MIB)
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    feed(receiver, stream, [max(piece, len(stream) // 2_000) for piece in pieces])
    assert got == frames
    assert receiver.is_between_frames


def test_a_delivered_frame_is_not_overwritten() -> None:
    kept: list[memoryview] = []
    receiver = FrameReceiver(kept.append, max_bytes=MIB)
    for letter in (b"a", b"b"):
        feed(receiver, (3).to_bytes(4, "big") + letter * 3, [100])
        feed(receiver, (100_000).to_bytes(4, "big") + letter * 100_000, [100_000])
    assert [bytes(frame[:3]) for frame in kept] == [b"aaa", b"aaa", b"bbb", b"bbb"]


@pytest.mark.parametrize("size", [0, -1, MIB + 1, 0x48545450])
def test_an_invalid_size_is_refused_before_anything_is_buffered(size: int) -> None:
    receiver = FrameReceiver(lambda frame: None, max_bytes=MIB)
    with pytest.raises(FrameSizeRefused):
        feed(receiver, size.to_bytes(4, "big", signed=True), [4])
