"""Which columns an audit digests, and how the duplicate digests of its tasks are merged."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.spark.jobs.content import IDENTITY_COLUMNS, Identity, parse_identity
from penstock.spark.jobs.digests import DigestedColumns
from penstock.spark.jobs.record_rows import choose_digested_columns, merge_duplicate_digests


@pytest.mark.parametrize(
    ("identity", "compared"),
    [
        (Identity(IDENTITY_COLUMNS), DigestedColumns(("key", "value"), skips_tombstones=True)),
        (
            parse_identity("timestamp,value"),
            DigestedColumns(("value",), skips_tombstones=False),
        ),
        (parse_identity("headers,timestamp"), None),
    ],
)
def test_digests_cover_key_and_value(identity: Identity, compared: DigestedColumns | None) -> None:
    assert choose_digested_columns(identity) == compared


def encoded(*digests: int) -> bytes:
    return np.array(digests, "<u8").tobytes()


def test_digests_of_all_tasks_are_merged_and_sorted() -> None:
    merged = merge_duplicate_digests([(2, encoded(3, 9)), (0, b""), (1, encoded(5))])
    assert merged is not None
    assert merged.tolist() == [3, 5, 9]


def test_no_duplicate_digests_merge_to_an_empty_array() -> None:
    merged = merge_duplicate_digests([(0, b""), (0, b"")])
    assert merged is not None
    assert not merged.size


def test_too_many_duplicate_digests_are_not_merged() -> None:
    assert merge_duplicate_digests([(3, encoded(1, 2)), (0, b"")]) is None
    many = encoded(*range(60_000))
    assert merge_duplicate_digests([(60_000, many), (60_000, many)]) is None
