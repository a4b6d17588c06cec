import struct

import pytest

from penstock.model.ids import Offset, ProducerId
from penstock.storage.errors import MalformedTransactionIndex
from penstock.storage.transaction_index import (
    ENTRY_BYTES,
    AbortedTxn,
    collect_aborted,
    decode_entries,
    encode_entry,
)

MAX = 2**63 - 1


def aborted(producer_id: int, first: int, last: int, stable: int) -> AbortedTxn:
    return AbortedTxn(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable))


ENTRIES = [
    aborted(0, 0, 10, 2),
    aborted(MAX, 2, 11, 11),
    aborted(7, 11, 40, 41),
    aborted(7, 50, MAX, MAX),
]
GOLDEN = b"".join(
    struct.pack(">h", 0) + struct.pack(">4q", *fields)
    for fields in [(0, 0, 10, 2), (MAX, 2, 11, 11), (7, 11, 40, 41), (7, 50, MAX, MAX)]
)


def test_entries_are_34_bytes_as_kafka_writes_them() -> None:
    assert ENTRY_BYTES == 34
    assert b"".join(encode_entry(entry) for entry in ENTRIES) == GOLDEN


def test_entries_written_by_kafka_are_read_from_bytes_and_views() -> None:
    assert decode_entries(GOLDEN) == ENTRIES
    assert decode_entries(memoryview(GOLDEN)) == ENTRIES
    assert decode_entries(b"") == []


def test_a_file_truncated_within_an_entry_is_reported_with_the_whole_ones() -> None:
    for length in range(len(GOLDEN)):
        whole, rest = divmod(length, 34)
        if rest == 0:
            assert decode_entries(GOLDEN[:length]) == ENTRIES[:whole]
            continue
        with pytest.raises(MalformedTransactionIndex) as caught:
            decode_entries(GOLDEN[:length], "/data/t-0/0.txnindex")
        assert caught.value.valid == ENTRIES[:whole]
        assert "/data/t-0/0.txnindex" in str(caught.value)


@pytest.mark.parametrize(
    "second",
    [
        struct.pack(">hqqqq", 1, 5, 11, 12, 13),  # an unknown version
        struct.pack(">hqqqq", 0, -1, 11, 12, 13),
        struct.pack(">hqqqq", 0, 5, -1, 12, 13),
        struct.pack(">hqqqq", 0, 5, 12, 12, 13),  # a marker follows at least one record
        struct.pack(">hqqqq", 0, 5, 11, 12, -1),
        struct.pack(">hqqqq", 0, 5, 1, 10, 13),  # its marker is before the previous one
    ],
)
def test_an_impossible_entry_is_reported_with_the_entries_before_it(second: bytes) -> None:
    with pytest.raises(MalformedTransactionIndex) as caught:
        decode_entries(GOLDEN[:34] + second + GOLDEN[68:])
    assert caught.value.valid == ENTRIES[:1]


@pytest.mark.parametrize(
    ("fetch", "bound", "expected", "complete"),
    [
        (0, 1, [0], True),
        (0, 2, [0], True),  # by the first entry, nothing undecided began before 2
        (0, 3, [0, 1], True),
        (10, 11, [0, 1], True),
        (11, 12, [1, 2], True),
        (12, 41, [2], True),
        (41, 45, [], True),
        (41, 51, [3], True),
        (0, MAX, [0, 1, 2, 3], True),
    ],
)
def test_aborted_transactions_that_touch_the_range_are_collected(
    fetch: int, bound: int, expected: list[int], complete: bool
) -> None:
    assert collect_aborted(ENTRIES, fetch, bound) == ([ENTRIES[i] for i in expected], complete)


def test_the_search_continues_while_a_transaction_below_the_bound_was_open() -> None:
    assert collect_aborted(ENTRIES[:2], 0, 20) == (ENTRIES[:2], False)
    assert collect_aborted([], 0, 20) == ([], False)
