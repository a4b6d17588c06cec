"""Tests of several folders pass on a compiled copy of the sources.

`make verify-compiled` runs whole folders on it. Here they run in a process of their own, because
this one has imported the plain build.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.compiled_build import compiled_directory
from tests.profile import is_long

from penstock.protocol.build import find_build

ROOT = Path(__file__).parents[2]
SHORT = [
    "tests/clients/test_our_consumer.py",  # those marked `quick`
    "tests/unit/network/test_frames.py",
    "tests/unit/purgatory/test_delayed_operations.py",
]
LONG = [
    *SHORT,
    "tests/scenarios/test_bad_requests.py",
    "tests/clients/test_confluent_kafka.py",
    "tests/clients/test_java_client.py",
    "tests/cluster/test_replica_replacement.py",
    "tests/crash/test_live_kills.py",
    "tests/scenarios/test_bad_frames.py",
    "tests/spark/test_source.py",
]

pytestmark = [
    pytest.mark.xdist_group("compiled"),  # so that one worker compiles it
    pytest.mark.skipif(find_build() == "compiled", reason="all tests of this run are"),
]


@pytest.mark.parametrize("selected", LONG if is_long() else SHORT)
def test_a_selection_passes_on_the_compiled_build(selected: str) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    } | {"PYTHONPATH": str(compiled_directory()), "PENSTOCK_TEST_BUILD": "compiled"}
    quick = [] if is_long() or "/unit/" in selected else ["-m", "quick"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quick, selected],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert " passed" in done.stdout  # conftest.py has checked which build it was


def test_a_compiled_copy_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "--version"],
        env={**os.environ, "PYTHONPATH": str(compiled_directory())},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("(compiled build)\n")
