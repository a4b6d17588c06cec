"""Column lists in Spark's DDL."""

import pytest

from penstock.spark.codec.ddl_columns import NotColumns, column_names, to_ddl


def test_commas_inside_types_and_quotes_do_not_split_columns() -> None:
    nested = "MAP<STRING, STRUCT<x: INT, y: DECIMAL(3, 1)>>"
    ddl = f"a INT, `b, c` STRING, d {nested} COMMENT 'e, f', g: INT"
    assert column_names(ddl) == ["a", "b, c", "d", "g"]


def test_arbitrary_names_survive_ddl() -> None:
    names = ["plain", "two words", "a`b", "a, b"]
    assert column_names(to_ddl(dict.fromkeys(names, "INT"))) == names


@pytest.mark.parametrize("ddl", ["a", "a INT,", "a ARRAY<INT", "a INT>", "1a INT", "`a INT", ""])
def test_invalid_column_lists_are_rejected(ddl: str) -> None:
    with pytest.raises(NotColumns):
        column_names(ddl)
