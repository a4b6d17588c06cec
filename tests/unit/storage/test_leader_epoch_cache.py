import pytest

from penstock.model.ids import LeaderEpoch, Offset
from penstock.storage.errors import MalformedCheckpoint
from penstock.storage.leader_epoch_cache import (
    EpochEntry,
    LeaderEpochCache,
    OffsetAndEpoch,
    decode_epochs,
    encode_epochs,
    read_epochs,
    write_epochs,
)
from penstock.testing.simulated_disk import SimulatedDisk

MAX_EPOCH = 2**31 - 1
MAX_OFFSET = 2**63 - 1


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in pairs]


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(entries(*pairs))


def end(epoch: int, offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(LeaderEpoch(epoch), Offset(offset))


def test_a_new_cache_has_no_epoch() -> None:
    fresh = LeaderEpochCache()
    assert fresh.latest == -1
    assert fresh.entries == ()
    assert fresh.find_epoch_at(0) is None
    assert fresh.find_end_offset(0, 0) is None
    assert not fresh.dirty


def test_epoch_zero_at_offset_zero_is_a_normal_epoch() -> None:
    fresh = LeaderEpochCache()
    assert fresh.assign(0, 0)
    assert fresh.dirty
    assert fresh.latest == 0
    assert fresh.find_epoch_at(0) == 0
    assert fresh.find_end_offset(0, 5) == end(0, 5)


def test_an_epoch_without_records_is_kept() -> None:
    leader = cache((0, 0))
    leader.assign(4, 10)
    assert leader.find_end_offset(3, 10) == end(0, 10)
    assert leader.find_end_offset(4, 10) == end(4, 10)


def test_more_batches_of_the_latest_epoch_change_nothing() -> None:
    epochs = cache((1, 10))
    assert not epochs.assign(1, 10)
    assert not epochs.assign(1, 11)
    assert not epochs.dirty
    assert epochs.entries == tuple(entries((1, 10)))


def test_an_earlier_start_of_the_latest_epoch_replaces_the_later_one() -> None:
    epochs = cache((1, 10), (2, 20))
    assert epochs.assign(2, 15)
    assert epochs.entries == tuple(entries((1, 10), (2, 15)))


def test_an_epoch_replaces_an_empty_one_with_the_same_start() -> None:
    epochs = cache((1, 10), (2, 20))
    assert epochs.assign(3, 20)
    assert epochs.entries == tuple(entries((1, 10), (3, 20)))


def test_an_epoch_that_begins_earlier_drops_all_that_it_contradicts() -> None:
    epochs = cache((1, 10), (2, 20), (3, 30))
    assert epochs.assign(4, 15)
    assert epochs.entries == tuple(entries((1, 10), (4, 15)))


def test_an_older_epoch_drops_the_newer_ones() -> None:
    epochs = cache((1, 10), (4, 20), (5, 30))
    assert epochs.assign(2, 40)
    assert epochs.entries == tuple(entries((1, 10), (2, 40)))


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_rejected(epoch: int, offset: int) -> None:
    epochs = cache((1, 10))
    with pytest.raises(ValueError, match="both start at 0"):
        epochs.assign(epoch, offset)
    assert epochs.entries == tuple(entries((1, 10)))


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (-1, None),  # a follower without epochs
        (0, end(0, 10)),  # before the first entry: its start offset
        (1, end(1, 20)),
        (2, end(1, 20)),  # KIP-279: unknown here, so the one before it
        (3, end(3, 30)),
        (4, end(3, 30)),
        (5, end(5, 44)),  # the latest ends at the log end
        (6, None),
        (MAX_EPOCH, None),
    ],
)
def test_an_epoch_ends_where_the_next_begins(
    requested: int, expected: OffsetAndEpoch | None
) -> None:
    assert cache((1, 10), (3, 20), (5, 30)).find_end_offset(requested, 44) == expected


def test_the_highest_epoch_and_offset_are_usable() -> None:
    epochs = cache((0, 0), (MAX_EPOCH, MAX_OFFSET))
    assert epochs.find_end_offset(MAX_EPOCH, MAX_OFFSET) == end(MAX_EPOCH, MAX_OFFSET)
    assert epochs.find_end_offset(MAX_EPOCH - 1, MAX_OFFSET) == end(0, MAX_OFFSET)
    assert epochs.find_epoch_at(MAX_OFFSET) == MAX_EPOCH
    assert epochs.find_epoch_at(MAX_OFFSET - 1) == 0


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 1), (19, 1), (20, 3), (1_000, 3)])
def test_an_offset_belongs_to_the_epoch_that_began_at_or_before_it(
    offset: int, epoch: int | None
) -> None:
    assert cache((1, 10), (3, 20)).find_epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("offset", "kept"),
    [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (1_000, 2)],
)
def test_truncating_the_end_drops_epochs_that_begin_there_or_later(offset: int, kept: int) -> None:
    epochs = cache((1, 10), (3, 20))
    epochs.truncate_from_end(offset)
    assert epochs.entries == tuple(entries((1, 10), (3, 20))[:kept])
    assert epochs.dirty == (kept < 2)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (5, entries((1, 10), (3, 20))),
        (10, entries((1, 10), (3, 20))),
        (11, entries((1, 11), (3, 20))),
        (19, entries((1, 19), (3, 20))),
        (20, entries((3, 20))),
        (99, entries((3, 99))),
    ],
)
def test_truncating_the_start_keeps_the_epoch_that_covers_it(
    offset: int, expected: list[EpochEntry]
) -> None:
    epochs = cache((1, 10), (3, 20))
    epochs.truncate_from_start(offset)
    assert epochs.entries == tuple(expected)
    assert epochs.dirty == (expected != entries((1, 10), (3, 20)))


def test_clear_removes_all_epochs_and_reports_a_change_only_then() -> None:
    epochs = cache((1, 10))
    epochs.clear()
    assert epochs.dirty
    assert epochs.latest == -1
    epochs.dirty = False
    epochs.clear()
    assert not epochs.dirty


GOLDEN = b"0\n3\n0 0\n7 1234\n2147483647 9223372036854775807\n"
GOLDEN_ENTRIES = entries((0, 0), (7, 1234), (MAX_EPOCH, MAX_OFFSET))


def test_epochs_are_written_and_read_as_kafka_writes_them() -> None:
    assert encode_epochs(GOLDEN_ENTRIES) == GOLDEN
    assert decode_epochs(GOLDEN, "f") == GOLDEN_ENTRIES
    assert encode_epochs([]) == b"0\n0\n"
    assert decode_epochs(b"", "f") == []


def test_a_truncated_epoch_file_never_reads_as_a_shorter_valid_one() -> None:
    for length in range(1, len(GOLDEN)):
        with pytest.raises(MalformedCheckpoint):
            decode_epochs(GOLDEN[:length], "f")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"2\n0\n", 1),
        (b"0\n2\n0 0\n", 2),
        (b"0\n1\n0\n", 3),
        (b"0\n1\n-1 0\n", 3),
        (b"0\n1\n2147483648 0\n", 3),
        (b"0\n2\n1 5\n1 6\n", 4),  # epochs and offsets must strictly increase
        (b"0\n2\n1 5\n2 5\n", 4),
        (b"0\n2\n2 5\n1 6\n", 4),
    ],
)
def test_a_malformed_epoch_file_is_rejected_with_its_name_and_line(
    content: bytes, line: int
) -> None:
    with pytest.raises(MalformedCheckpoint) as caught:
        decode_epochs(content, "/data/t-0/leader-epoch-checkpoint")
    assert caught.value.path == "/data/t-0/leader-epoch-checkpoint"
    assert caught.value.line == line


def test_epochs_survive_a_round_trip() -> None:
    disk, path = SimulatedDisk("/data"), "/data/leader-epoch-checkpoint"
    assert read_epochs(disk, path) == []
    write_epochs(disk, path, GOLDEN_ENTRIES)
    assert disk.files() == {path: GOLDEN}
    assert LeaderEpochCache(read_epochs(disk, path)).entries == tuple(GOLDEN_ENTRIES)
