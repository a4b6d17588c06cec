"""The compiled and the plain walk agree on every input: no overflow, no other result, no crash."""

import os
import subprocess
import sys
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiled_build import compiled_directory, load_compiled
from tests.profile import scaled
from tests.unit.protocol.damaged_records import HOSTILE, Walk, damaged, encoded_records

from penstock.protocol import record_walk
from penstock.protocol.build import find_build
from penstock.protocol.varint import MAX_INT64, MIN_INT64, encode_varint

pytestmark = [
    pytest.mark.xdist_group("compiled"),  # so that one worker compiles it
    pytest.mark.skipif(find_build() == "compiled", reason="compares the plain walk with it"),
]

Bounds = tuple[int, int, int]
_LONGS = st.sampled_from([MIN_INT64, -(2**31), -1, 0, 1, 2**31, MAX_INT64]) | st.integers(
    MIN_INT64, MAX_INT64
)
BOUNDS = st.tuples(_LONGS, _LONGS, _LONGS)
COUNTS = st.sampled_from([-1, 0, 1, 2, 2**31 - 1, 2**31, MAX_INT64]) | st.integers(0, 5)
FUZZED = settings(
    max_examples=scaled(test=60, verify=6_000, release=200_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    module = load_compiled(compiled_directory(), "penstock.protocol.record_walk")
    assert module.__file__ is not None
    assert not module.__file__.endswith(".py")
    return module


def verdict(module: ModuleType, data: bytes, count: int, bounds: Bounds, keys: bool) -> object:
    faults: list[tuple[int, int]] = []
    return module.walk_records(data, count, *bounds, keys, faults), faults


def assert_agree(compiled: ModuleType, data: bytes, count: int, bounds: Bounds) -> None:
    for keys in (False, True):
        expected = verdict(record_walk, data, count, bounds, keys)
        assert verdict(compiled, data, count, bounds, keys) == expected


@FUZZED
@given(sent=encoded_records(), bounds=BOUNDS, draw=st.data())
def test_both_walks_agree_on_valid_and_damaged_records(
    compiled: ModuleType, sent: Walk, bounds: Bounds, draw: st.DataObject
) -> None:
    assert_agree(compiled, sent.data, sent.records, bounds)
    once = damaged(sent.data, draw)
    assert_agree(compiled, once, sent.records, bounds)
    assert_agree(compiled, damaged(once, draw), sent.records, bounds)


@FUZZED
@given(
    pieces=st.lists(st.sampled_from([*HOSTILE, b"\0", b"\2k"]) | st.binary(max_size=6), max_size=9),
    count=COUNTS,
    bounds=BOUNDS,
    is_framed=st.booleans(),
)
def test_both_walks_agree_on_hostile_varints_in_any_field(
    compiled: ModuleType, pieces: list[bytes], count: int, bounds: Bounds, is_framed: bool
) -> None:
    content = b"".join(pieces)
    data = encode_varint(len(content)) + content if is_framed else content
    assert_agree(compiled, data, count, bounds)


@pytest.mark.parametrize("hostile", HOSTILE, ids=bytes.hex)
@pytest.mark.parametrize("field", range(8))
def test_both_walks_agree_on_a_hostile_varint_in_each_field(
    compiled: ModuleType, field: int, hostile: bytes
) -> None:
    fields = [b"", b"\0", b"\0", b"\0", b"\2k", b"\2v", b"\2", b"\2h", b"\2v"]
    fields[field + 1 if field else 0] = hostile
    content = b"".join(fields[1:])
    length = hostile if field == 0 else encode_varint(len(content))
    assert_agree(compiled, length + content, 1, (MIN_INT64, MAX_INT64, 0))


def test_a_compiled_broker_has_no_validation_warning() -> None:
    directory = compiled_directory()
    module = "penstock.replication.validation_cost"
    done = subprocess.run(
        [sys.executable, "-c", f"import {module} as cost; print(cost.find_validation_warning())"],
        env={**os.environ, "PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"
