"""What an audit compares of records, and what its tasks tell of those that are there twice."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.spark.jobs.content import IDENTITY_COLUMNS, Identity, parse_identity
from penstock.spark.jobs.digests import DigestedColumns
from penstock.spark.jobs.record_rows import compared_of, read_twice


@pytest.mark.parametrize(
    ("identity", "compared"),
    [
        (Identity(IDENTITY_COLUMNS), DigestedColumns(("key", "value"), leaves_out_tombstones=True)),
        (
            parse_identity("timestamp,value"),
            DigestedColumns(("value",), leaves_out_tombstones=False),
        ),
        (parse_identity("headers,timestamp"), None),
    ],
)
def test_keys_and_values_are_compared_first(
    identity: Identity, compared: DigestedColumns | None
) -> None:
    assert compared_of(identity) == compared


def told(*digests: int) -> bytes:
    return np.array(digests, "<u8").tobytes()


def test_digests_of_all_tasks_are_sorted() -> None:
    found = read_twice([(2, told(3, 9)), (0, b""), (1, told(5))])
    assert found is not None
    assert found.tolist() == [3, 5, 9]


def test_no_digest_is_there_twice() -> None:
    found = read_twice([(0, b""), (0, b"")])
    assert found is not None
    assert not found.size


def test_where_a_task_cannot_tell_all_or_all_together_are_too_many_none_is_named() -> None:
    assert read_twice([(3, told(1, 2)), (0, b"")]) is None
    many = told(*range(60_000))
    assert read_twice([(60_000, many), (60_000, many)]) is None
