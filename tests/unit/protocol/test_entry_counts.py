"""Entries of an array are counted before a request is decoded, whatever precedes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.apis.harness import build

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.entry_counts import Excess, find_excess
from penstock.protocol.messages import encode, get_request_schema

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
NAMES, OWNED = "subscribed_topic_names", "topic_partitions"


@pytest.mark.parametrize("version", range(2))
@given(
    names=st.lists(st.text(max_size=200)), owned=st.lists(st.integers(0, 9)), cut=st.floats(0, 1)
)
def test_a_later_array_is_found_behind_any_earlier_one(
    version: int, names: list[str], owned: list[int], cut: float
) -> None:
    schema = get_request_schema(HEARTBEAT, version)
    entries = [{"partitions": range(count)} for count in owned]
    body = bytes(encode(build(schema, {NAMES: names, OWNED: entries, "instance_id": "i"})))
    limits = {NAMES: len(names), OWNED: len(owned)}
    assert find_excess(schema, body, limits) is None
    if owned:
        excess = Excess(OWNED, len(owned), len(owned) - 1)
        assert find_excess(schema, body, limits | {OWNED: len(owned) - 1}) == excess
    if names:
        excess = Excess(NAMES, len(names), len(names) - 1)
        assert find_excess(schema, body, limits | {NAMES: len(names) - 1}) == excess
    assert find_excess(schema, body[: int(cut * len(body))], limits) is None, "left to the decoder"


@pytest.mark.parametrize("version", range(10))
def test_a_count_is_checked_without_its_entries(version: int) -> None:
    """The entries are invalid, which shows that only the count was read."""
    schema = get_request_schema(ApiKey.JOIN_GROUP, version)
    body = bytes(encode(build(schema, {"protocols": [{"name": "p", "metadata": b""}] * 5000})))
    excess = Excess("protocols", 5000, 1000)
    half = len(body) // 2
    garbage = body[:half] + b"\xff" * half
    assert find_excess(schema, garbage, {"protocols": 1000}) == excess
    assert find_excess(schema, body[:half], {"protocols": 1000}) is None, "malformed: too few bytes"
    assert str(excess) == "protocols has 5000 entries, at most 1000 are accepted"
