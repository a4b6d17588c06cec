"""Column types parsed from Spark's DDL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.spark.tables.arrow_types import TIMESTAMP, arrow_fields, list_of
from penstock.spark.tables.errors import BadTableOption


def test_every_type_is_parsed() -> None:
    fields = arrow_fields(
        "a INT, `b c` string, t TIMESTAMP, n decimal(10, 2), l ARRAY<DOUBLE>, "
        "s STRUCT<x: INT, y:ARRAY<STRING>>, m MAP<STRING, BIGINT>"
    )
    inner = pa.struct([pa.field("x", pa.int32()), pa.field("y", list_of(pa.string()))])
    assert fields == [
        pa.field("a", pa.int32()),
        pa.field("b c", pa.string()),
        pa.field("t", TIMESTAMP),
        pa.field("n", pa.decimal128(10, 2)),
        pa.field("l", list_of(pa.float64())),
        pa.field("s", inner),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a NUMBER", "column a: 'NUMBER' is not a supported type"),
        ("a DECIMAL(39, 2)", "not DECIMAL(39, 2)"),
        ("m MAP<INT, INT>", "write MAP<STRING, type>"),
        ("a INT, A STRING", "occurs twice"),
        ("a ARRAY<INT", "never closed"),
        ("s STRUCT<x: WRONG>", "column x: 'WRONG'"),
    ],
)
def test_invalid_types_are_rejected(written: str, expected: str) -> None:
    with pytest.raises(BadTableOption, match=r"^[^\n]+$") as refused:
        arrow_fields(written)
    assert expected in str(refused.value)
