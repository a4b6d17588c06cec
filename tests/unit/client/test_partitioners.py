import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.partitioners import (
    BY_HASH,
    CustomPartitioner,
    HashOrRoundRobin,
    RoundRobin,
    Sticky,
)


def test_round_robin_uses_every_partition_in_turn_whatever_the_key() -> None:
    partitioner = RoundRobin()
    assert [partitioner.choose(b"same", b"v", 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_uses_added_partitions() -> None:
    partitioner = RoundRobin()
    for _ in range(2):
        partitioner.choose(None, b"v", 2)
    assert {partitioner.choose(None, b"v", 3) for _ in range(3)} == {0, 1, 2}


def test_hash_or_round_robin_hashes_keys_and_takes_turns_without() -> None:
    partitioner = HashOrRoundRobin()
    keys = [None, b"a", None, b"", None, None]
    chosen = [partitioner.choose(key, b"v", 3) for key in keys]
    assert chosen == [0, BY_HASH, 1, BY_HASH, 2, 0]


def test_sticky_changes_the_partition_when_a_batch_is_full() -> None:
    partitioner = Sticky(batch_bytes=100)
    first = [partitioner.choose(b"k" * 10, b"v" * 40, 5) for _ in range(2)]
    second = [partitioner.choose(None, b"v" * 100, 5)]
    third = [partitioner.choose(None, None, 5) for _ in range(50)]
    assert len(set(first)) == len(set(third)) == 1
    assert first[-1] != second[0] != third[0]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 6)), max_size=60))
def test_sticky_picks_only_existing_partitions(sends: list[tuple[int, int]]) -> None:
    partitioner = Sticky(batch_bytes=200)
    for size, partitions in sends:
        assert 0 <= partitioner.choose(None, bytes(size), partitions) < partitions


@pytest.mark.parametrize("answer", [-1, 3, None, "0", 1.0])
def test_a_partitioner_that_picks_an_invalid_partition_raises(answer: object) -> None:
    partitioner = CustomPartitioner(lambda key, value, partitions: answer)  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="0 to 2"):
        partitioner.choose(None, b"v", 3)
