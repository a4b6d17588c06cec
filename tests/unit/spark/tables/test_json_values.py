"""JSON values to columns: blocks and single values give the same rows and the same bad values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.tables.arrow_types import arrow_fields
from penstock.spark.tables.evolution import grow
from penstock.spark.tables.json_values import ParsedValues, parse_json


def parse(
    values: Sequence[bytes | None], columns: str = "", *, finds: bool = False
) -> ParsedValues:
    fields = arrow_fields(columns) if columns else []
    return parse_json(pa.array(values, pa.binary()), fields, finds_fields=finds)


def test_rows_stay_aligned_with_their_values() -> None:
    values = [b'{"a": 1}', None, b"bad", b' {"a": 3}\n', b'{"b": 1}']
    parsed = parse(values, "a INT")
    assert parsed.columns.to_pylist() == [{"a": number} for number in (1, None, None, 3, None)]
    assert parsed.bad == {2: "not valid JSON: Expecting value: line 1 column 1 (char 0)"}


def test_two_objects_in_one_value_are_bad_and_do_not_shift_rows() -> None:
    parsed = parse([b'{"a": 1}{"a": 2}', b'{"a": 3}', b"", b'{"a": 4}'], "a INT")
    assert sorted(parsed.bad) == [0, 2]
    assert parsed.columns.column("a").to_pylist() == [None, 3, None, 4]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"n": 1.5}', "field n: 1.5 is not int32"),
        (b'{"n": "1"}', 'field n: "1" is not int32'),
        (b'{"n": 3000000000}', "field n: 3000000000 is not int32"),
        (b'{"n": true}', "field n: true is not int32"),
        (b'{"at": "yesterday"}', 'field at: "yesterday" is not timestamp[us, tz=UTC]'),
        (b"[1]", "not a JSON object"),
        (b'{"n": 1} x', "not valid JSON: Extra data: line 1 column 10 (char 9)"),
        (b"\xff{}", "not UTF-8 text"),
        (b'{"s": "\\ud800"}', 'field s: "\\ud800" is not string'),
    ],
)
def test_value_of_another_type_has_a_reason(value: bytes, reason: str) -> None:
    parsed = parse([b'{"n": 1}', value], "n INT, at TIMESTAMP, s STRING")
    assert parsed.bad == {1: reason}
    assert parsed.columns.column("n").to_pylist() == [1, None]


def test_types_that_json_lacks_are_parsed_from_strings() -> None:
    value = {
        "at": "2026-01-31T13:45:00.5+02:00",
        "local": "2026-01-31 13:45:00",
        "day": "2026-01-31",
        "price": 12.5,
        "raw": "AQI=",
        "tags": {"a": 1},
        "any": {"x": [1, None]},
    }
    parsed = parse(
        [json.dumps(value).encode()],
        "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, price DECIMAL(10, 2), raw BINARY, "
        "tags MAP<STRING, INT>, any STRING",
    )
    assert not parsed.bad
    (row,) = parsed.columns.to_pylist()
    assert row["at"].isoformat() == "2026-01-31T11:45:00.500000+00:00"
    assert row["local"].isoformat() == "2026-01-31T13:45:00"
    assert (str(row["day"]), str(row["price"]), row["raw"]) == ("2026-01-31", "12.50", b"\x01\x02")
    assert (row["tags"], row["any"]) == ([("a", 1)], '{"x": [1, null]}')


def test_fields_are_merged_across_blocks_and_types() -> None:
    values = [json.dumps({"n": number}).encode() for number in range(20_000)]
    values[15_000] = b'{"n": 0.5, "new": [{"deep": "x"}]}'
    grown = grow([], parse(values, finds=True).seen_fields)
    assert [str(field) for field in grown.fields] == [
        "pyarrow.Field<n: double>",
        "pyarrow.Field<new: list<element: struct<deep: string>>>",
    ]


def test_few_bad_values_among_many_are_found() -> None:
    values = [json.dumps({"n": number}).encode() for number in range(20_000)]
    for index in (0, 8191, 8192, 19_999):
        values[index] = b"{"
    parsed = parse(values, "n BIGINT")
    assert sorted(parsed.bad) == [0, 8191, 8192, 19_999]
    numbers = parsed.columns.column("n").to_pylist()
    assert all(numbers[at] == at for at in range(20_000) if at not in parsed.bad)


_PIECES = st.sampled_from(
    [b'{"a":1}', b'{"a":null}', b"{}", b'{"a":"x"}', b'{"a":1}{"a":2}', b"", b"  ", b"{", b"}",
     b'{"a":{"b":[1]}}', b'{"a":"}\n{"}', b'{"a":1}\n', b"null", b'{"a":1,"a":2}', b"\xff"]
)  # fmt: skip


@settings(max_examples=300)
@given(values=st.lists(_PIECES | st.binary(max_size=4), max_size=12))
def test_blocks_parse_like_single_values(values: list[bytes]) -> None:
    parsed = parse(values, "a BIGINT")
    for index, value in enumerate(values):
        expected = _expected(value)
        assert (index in parsed.bad) == (expected is None), value
        if expected is not None:
            assert parsed.columns.column("a")[index].as_py() == expected["a"]


def _expected(value: bytes) -> dict[str, Any] | None:
    try:
        loaded = json.loads(value.decode())
    except (ValueError, UnicodeDecodeError):
        return None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("a"), int | None):
        return None
    return {"a": loaded.get("a")}
