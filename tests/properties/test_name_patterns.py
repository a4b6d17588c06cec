"""Patterns match the names that the library's expressions match, where both know the syntax."""

import re
from contextlib import suppress

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.model.name_pattern import InvalidPattern, compile_pattern
from penstock.model.name_pattern_syntax import MAX_LENGTH

NAMES = st.text("abA.-", max_size=8)
_LEAVES = st.sampled_from(
    ["a", "b", "A", r"\.", "-", ".", "[ab]", "[^a]", "[a-b.]", r"\w", r"\W", "^", "$", "(?i:a)"]
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, signs).map(lambda two: f"(?:{two[0]}){two[1]}"),
    )


PATTERNS = st.recursive(_LEAVES, _grow, max_leaves=8)


@given(pattern=PATTERNS, names=st.lists(NAMES, min_size=1, max_size=12))
@settings(max_examples=scaled(test=300, verify=1500, release=30_000), deadline=None)
def test_the_same_names_match(pattern: str, names: list[str]) -> None:
    assume(len(pattern) <= MAX_LENGTH)
    expected = [re.fullmatch(pattern, name) is not None for name in names]
    compiled = compile_pattern(pattern)
    assert [compiled.matches(name) for name in names] == expected


@given(text=st.text(st.sampled_from("ab(){}[]*+?|^$\\.,:<>=!-PQEix12"), max_size=20))
@settings(max_examples=scaled(test=300, verify=1500, release=30_000), deadline=None)
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with suppress(InvalidPattern):
        compile_pattern(text).matches("orders")
