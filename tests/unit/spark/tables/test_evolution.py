"""Schema evolution of JSON values."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tables.arrow_types import list_of
from penstock.spark.tables.evolution import grow, join_fields, join_types, settle, type_of

A = pa.field("a", pa.int64())
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_new_field_becomes_the_last_column() -> None:
    grown = grow([A], [pa.field("b", pa.string()), A])
    assert grown.fields == [A, pa.field("b", pa.string())]
    assert grown.added == ["b"]


def test_stored_type_never_changes() -> None:
    grown = grow([A], [pa.field("a", pa.string())])
    assert (grown.fields, grown.added) == ([A], [])


def test_struct_gains_new_fields() -> None:
    stored = pa.field("s", pa.struct([A]))
    grown = grow([stored], [pa.field("s", pa.struct([pa.field("b", pa.bool_())]))])
    assert grown.fields == [pa.field("s", pa.struct([A, pa.field("b", pa.bool_())]))]
    assert grown.added == ["s.*"]


def test_fields_with_invalid_names_are_refused() -> None:
    seen = [pa.field(name, pa.int64()) for name in ("A", "_offset", "x y", "", "a.b", "ok")]
    grown = grow([A], seen)
    assert [field.name for field in grown.fields] == ["a", "ok"]
    assert grown.refused == ["A", "_offset", "x y", "", "a.b"]


def test_nulls_and_empty_lists_are_not_columns_yet() -> None:
    seen = [
        pa.field("n", pa.null()),
        pa.field("l", list_of(pa.null())),
        pa.field("s", pa.struct([])),
    ]
    assert grow([], seen).fields == []


def test_timestamps_are_inferred_as_strings() -> None:
    assert settle(pa.timestamp("s")) == pa.string()


def test_joined_type_is_the_narrowest_that_holds_both() -> None:
    assert join_types(pa.int64(), pa.float64()) == pa.float64()
    assert join_types(pa.int64(), pa.bool_()) == pa.string()
    assert join_types(list_of(pa.null()), list_of(pa.int64())) == list_of(pa.int64())
    assert join_fields([[A], [pa.field("b", pa.null())], [pa.field("a", pa.float64())]]) == [
        pa.field("a", pa.float64()),
        pa.field("b", pa.null()),
    ]


@given(one=_JSON, other=_JSON)
def test_joining_plain_types_is_commutative(one: object, other: object) -> None:
    left, right = type_of(one), type_of(other)
    joined = join_types(left, right)
    if not pa.types.is_nested(joined):
        assert joined == join_types(right, left)
    assert join_types(joined, left) == joined


@given(value=_JSON)
def test_growing_twice_by_the_same_fields_is_idempotent(value: object) -> None:
    seen = [pa.field("v", type_of(value))]
    once = grow([], seen)
    again = grow(once.fields, seen)
    assert (again.fields, again.added) == (once.fields, [])
