"""The small slices of a response: grouped, read together, or taken by the kernel from a map."""

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.slices import FileRun, FileSlice, ScatteredSlices
from penstock.network.in_flight_request import Part
from penstock.network.send_queue import SendPath, SendQueue
from penstock.network.small_slices import (
    COPIED_BYTES,
    GROUPED,
    JOINED_GAP_BYTES,
    MAPPED_BYTES_A_SLICE,
    MAPPED_SLICES,
    MAX_MAPS,
    SMALL_BYTES,
    FileTruncated,
    Maps,
    SmallSlices,
    grouped,
)

FILE_BYTES = 3_000_000
BATCH_BYTES = 1000
PARTITIONS = 4


@pytest.fixture(name="content", scope="module")
def _content() -> bytes:
    return random.Random(1).randbytes(FILE_BYTES)


@pytest.fixture(name="file")
def _file(tmp_path: Path, content: bytes) -> Iterator[int]:
    path = tmp_path / "commitlog"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def run_of(fd: int, partition: int = 0, *, batches: int = 500, step: int = 0) -> FileRun:
    """Batches of one partition of several, whose batches alternate in the file."""
    step = step or PARTITIONS * (BATCH_BYTES + 32)
    positions = [partition * (BATCH_BYTES + 32) + number * step for number in range(batches)]
    return FileRun(ScatteredSlices(fd, positions, [BATCH_BYTES] * batches))


def bytes_of(parts: list[Part], content: bytes) -> bytes:
    pieces = [
        b"".join(content[at : at + size] for _, at, size in part.slices)
        if isinstance(part, FileRun)
        else bytes(part)
        for part in parts
    ]
    return b"".join(pieces)


def small(queue: SendQueue) -> list[SmallSlices]:
    return [part for part, _ in queue.entries if isinstance(part, SmallSlices)]


def drain(queue: SendQueue, *, at_most: int, buffer_bytes: int) -> bytes:
    """All that the queue sends, a little at a time."""
    ours, theirs = socket.socketpair()
    received = bytearray()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        while queue.entries:
            assert queue.send(ours, at_most) <= at_most
            received += theirs.recv(FILE_BYTES)
    return bytes(received)


@pytest.mark.parametrize("path", SendPath)
@pytest.mark.parametrize(("at_most", "buffer_bytes"), [(1 << 20, 1 << 20), (70_001, 10_000)])
def test_a_fetch_of_several_partitions_is_the_same_bytes_by_every_path(
    path: SendPath, at_most: int, buffer_bytes: int, file: int, content: bytes
) -> None:
    parts: list[Part] = []
    for partition in range(PARTITIONS):
        parts += [b"head %d" % partition, run_of(file, partition)]
    queue = SendQueue(path)
    queue.add(parts, None)
    assert drain(queue, at_most=at_most, buffer_bytes=buffer_bytes) == bytes_of(parts, content)


def test_partitions_that_share_a_part_of_the_file_share_its_map(file: int) -> None:
    queue = SendQueue(SendPath.SENDFILE)
    queue.add([run_of(file, partition) for partition in range(PARTITIONS)], None)
    maps = {id(pieces.mapped) for pieces in small(queue)}
    assert len(maps) == 1
    assert id(None) not in maps
    assert queue.unsent_bytes == 0


@pytest.mark.parametrize("path", [SendPath.COPY, SendPath.MMAP])
def test_only_the_kernel_takes_bytes_from_a_map(path: SendPath, file: int) -> None:
    """TLS encrypts in this process, where a bad page would be its end."""
    queue = SendQueue(path)
    queue.add([run_of(file)], None)
    assert [pieces.mapped for pieces in small(queue)] == [None] * len(small(queue))


def test_few_slices_and_those_far_apart_are_not_mapped(file: int) -> None:
    few = run_of(file, batches=MAPPED_SLICES - 1)
    apart = run_of(file, batches=MAPPED_SLICES + 10, step=2 * MAPPED_BYTES_A_SLICE)
    for run in (few, apart):
        assert Maps([run.slices]).find(ScatteredSlices(file, [0], [1])) is None
    near = run_of(file, batches=MAPPED_SLICES)
    assert Maps([near.slices]).find(ScatteredSlices(file, [0], [1])) is not None


def test_a_response_of_many_partitions_holds_few_maps_and_the_fullest(
    file: int, content: bytes
) -> None:
    """Each has a descriptor, which it keeps for as long as its client is slow."""
    counts = [MAPPED_SLICES + partition for partition in range(3 * MAX_MAPS)]
    parts: list[Part] = [
        FileRun(ScatteredSlices(file, range(start, start + 300 * count, 300), [100] * count))
        for start, count in zip(range(0, FILE_BYTES, 200_000), counts, strict=False)
    ]
    before = len(os.listdir("/dev/fd"))
    queue = SendQueue(SendPath.SENDFILE)
    queue.add(parts, None)
    assert len(os.listdir("/dev/fd")) <= before + MAX_MAPS
    mapped = [len(pieces.positions) for pieces in small(queue) if pieces.mapped is not None]
    assert mapped == counts[-MAX_MAPS:]
    assert drain(queue, at_most=1 << 20, buffer_bytes=1 << 20) == bytes_of(parts, content)
    assert len(os.listdir("/dev/fd")) == before


def test_a_file_truncated_under_its_map_is_an_error_and_not_the_end(file: int) -> None:
    queue = SendQueue(SendPath.SENDFILE)
    queue.add([run_of(file)], None)
    os.ftruncate(file, 0)
    with pytest.raises(FileTruncated):
        drain(queue, at_most=1 << 20, buffer_bytes=1 << 20)


def test_a_run_beyond_the_file_is_not_mapped_and_its_read_says_why(file: int) -> None:
    queue = SendQueue(SendPath.SENDFILE)
    queue.add([run_of(file, batches=FILE_BYTES // BATCH_BYTES)], None)
    assert small(queue)[0].mapped is None
    with pytest.raises(FileTruncated, match="truncated while a response"):
        drain(queue, at_most=1 << 30, buffer_bytes=1 << 20)


def test_every_part_of_a_group_can_be_sent_alone(file: int, content: bytes) -> None:
    lengths = [1, 300, 5000, 61, 700]
    positions = [10, 20, 400, 9000, 9100]
    run = FileRun(ScatteredSlices(file, positions, lengths))
    dense = ScatteredSlices(file, range(0, 10_000, 100), [50] * 100)
    mapped = Maps([dense]).find(dense)
    pieces = SmallSlices(file, positions, lengths, sum(lengths), mapped)
    whole = bytes_of([run], content)
    source = random.Random(5)
    edges = [0, 1, 2, 300, 301, 302, 5301, 5362, len(whole) - 1]
    for offset in edges + [source.randrange(len(whole)) for _ in range(50)]:
        for at_most in (1, 60, 301, 5300, len(whole), 1 << 20):
            views = pieces.views(offset, at_most)
            assert b"".join(views) == whole[offset : offset + at_most]


def test_groups_take_no_more_bytes_than_are_copied_at_once_nor_slices_than_one_call(
    file: int,
) -> None:
    many = ScatteredSlices(file, range(0, 200_000, 100), [61] * 2000)
    entries = [entry for entry in grouped(many) if isinstance(entry, SmallSlices)]
    assert sum(len(entry.positions) for entry in entries) == 2000
    assert max(len(entry.positions) for entry in entries) == GROUPED
    run = run_of(file)
    entries = [entry for entry in grouped(run.slices) if isinstance(entry, SmallSlices)]
    assert sum(entry.length for entry in entries) == run.size_bytes
    assert COPIED_BYTES - BATCH_BYTES < max(entry.length for entry in entries) <= COPIED_BYTES


def test_a_large_slice_among_small_ones_goes_alone(file: int) -> None:
    scattered = ScatteredSlices(file, [0, 2000, 90_000], [1000, SMALL_BYTES + 1, 1000])
    first, large, last = grouped(scattered)
    assert large == FileSlice(file, 2000, SMALL_BYTES + 1)
    assert [first, last] == [FileSlice(file, 0, 1000), FileSlice(file, 90_000, 1000)]


def test_slices_that_go_back_are_read_in_their_order(file: int, content: bytes) -> None:
    """As those of batches that were moved to the log's end."""
    slices = (FileSlice(file, 50_000, 300), FileSlice(file, 100, 300), FileSlice(file, 900, 300))
    queue = SendQueue(SendPath.SENDFILE)
    queue.add([FileRun(slices)], None)
    sent = drain(queue, at_most=1 << 20, buffer_bytes=1 << 20)
    assert sent == bytes_of([FileRun(slices)], content)


def test_neighbours_are_cut_out_of_few_reads(
    file: int, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    pread = os.pread

    def counting(fd: int, length: int, position: int) -> bytes:
        reads.append(length)
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", counting)
    gap = JOINED_GAP_BYTES
    positions = [0, 300 + gap, 2 * (300 + gap) + 1, 3 * (300 + gap) + 1]
    run = ScatteredSlices(file, positions, [300] * 4)
    (entry,) = grouped(run)
    assert isinstance(entry, SmallSlices)
    assert entry.read() == bytes_of([FileRun(run)], content)
    assert reads == [2 * 300 + gap, 2 * 300 + gap]
