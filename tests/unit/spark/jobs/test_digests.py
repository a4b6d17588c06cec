"""Digests of records: equal for equal records, and used to find duplicates."""

from __future__ import annotations

import string
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.digests import (
    DigestedColumns,
    comparable_rows,
    digest_rows,
    find_duplicate_digests,
    is_among,
    split,
)

BOTH = DigestedColumns(("key", "value"), skips_tombstones=True)
Content = tuple[bytes | None, bytes | None]
LONG = [b"x" * 2047, b"x" * 2048, b"x" * 2049, b"x" * 2999 + b"y", b"y" + b"x" * 2999]
CONTENTS = st.tuples(
    st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20) | st.sampled_from(LONG)
)


def rows_of(contents: list[Content], partition_index: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "partition_index": pa.array([partition_index] * len(contents), pa.int32()),
            "key": pa.array([key for key, _ in contents], pa.binary()),
            "value": pa.array([value for _, value in contents], pa.binary()),
        }
    )


@given(st.lists(CONTENTS, max_size=30), st.integers(0, 5))
def test_digests_are_equal_only_for_equal_records(contents: list[Content], cut: int) -> None:
    digests = digest_rows(rows_of(contents), BOTH).tolist()
    assert len(set(digests)) == len(set(contents))
    assert len(set(zip(digests, contents, strict=True))) == len(set(contents))
    sliced = rows_of(contents).slice(cut)
    assert digest_rows(sliced, BOTH).tolist() == digests[cut:]


def test_strings_that_differ_in_three_letters_have_different_digests() -> None:
    """The letters are at the ends of words and half-words, where a product does not carry."""
    letters = string.ascii_letters.encode()
    contents: list[Content] = [
        (None, b"-------%c---%c---%c" % letters_at)
        for letters_at in product(letters, letters, letters[:9])
    ]
    assert len(set(digest_rows(rows_of(contents), BOTH).tolist())) == len(contents)


def test_digest_covers_column_and_partition() -> None:
    swapped = rows_of([(b"a", b"b"), (b"b", b"a"), (b"ab", b""), (None, b""), (b"", None)])
    assert len(set(digest_rows(swapped, BOTH).tolist())) == 5
    here, there = (
        digest_rows(rows_of([(b"a", b"b")], partition_index), BOTH)[0] for partition_index in (0, 1)
    )
    assert here != there


def test_a_digest_is_the_same_on_every_machine() -> None:
    long = rows_of([(b"k", b"value"), (b"k", b"x" * 3000)])
    assert digest_rows(long, BOTH).tolist() == [expected(b"k", b"value"), expected_long()]


def expected(*parts: bytes) -> int:
    digest = 0
    for part in parts:
        digest = mixed(digest ^ len(part) + 1)
        digest = mixed(digest ^ int.from_bytes(part, "little"))
    return digest


def expected_long() -> int:
    from crc32c import crc32c

    digest = mixed(expected(b"k") ^ 3001)
    return mixed(digest ^ crc32c(b"x" * 3000))


def mixed(digest: int) -> int:
    carried = (digest ^ digest >> 32) * 0x9E37_79B9_7F4A_7C15 % 2**64
    return carried ^ carried >> 32


@given(st.lists(st.lists(st.integers(0, 40)), min_size=1), st.integers(1, 4))
def test_duplicates_are_found_over_several_shares(tasks: list[list[int]], shares: int) -> None:
    digests = [np.array(task, np.uint64) * np.uint64(2**59 + 2**33 + 1) for task in tasks]
    split_up = [split(digest, shares) for digest in digests]
    duplicates = [
        find_duplicate_digest
        for share in range(shares)
        for find_duplicate_digest in find_duplicate_digests(task[share] for task in split_up)
    ]
    whole = np.concatenate(digests).tolist()
    assert sorted(duplicates) == sorted({digest for digest in whole if whole.count(digest) > 1})


@pytest.mark.parametrize("wanted", [[3], [1, 3, 9]])
def test_rows_are_selected_by_digest(wanted: list[int]) -> None:
    digests = np.arange(12, dtype=np.uint64)
    assert np.flatnonzero(is_among(digests, np.array(wanted, np.uint64))).tolist() == wanted


def test_tombstones_are_skipped_unless_requested() -> None:
    rows = rows_of([(b"k", None), (b"k", b"v")])
    assert comparable_rows(rows, BOTH).num_rows == 1
    assert comparable_rows(rows, DigestedColumns(("key",), skips_tombstones=False)).num_rows == 2
