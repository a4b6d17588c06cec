"""Java regular expressions for topic names."""

import pytest

from penstock.spark.errors import BadOption
from penstock.spark.source.topic_pattern import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders-.*", "my-orders-eu", "order-eu"),
        ("^(orders|events)$", "events", "events2"),
        (r"(?<region>eu|us)-\k<region>", "eu-eu", "eu-us"),
        (r"\p{Alpha}+\d", "abc1", "1b"),
        (r"^[\p{Lower}.]+", "a.b", "A.b"),
        (r"[a-z]++x?", "abc", "1"),
    ],
)
def test_pattern_matches_anywhere_in_a_name(pattern: str, matching: str, other: str) -> None:
    compiled = compile_pattern("subscribePattern", pattern)
    assert compiled.search(matching)
    assert not compiled.search(other)


@pytest.mark.parametrize("pattern", ["", "a(", r"\p{Greek}", "[z-a]"])
def test_unsupported_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(BadOption, match="subscribePattern"):
        compile_pattern("subscribePattern", pattern)
