"""What a warm worker hides from the garbage collector, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys, types
from penstock.spark.warm_process import settle

def count(modules):
    counts = []
    for number in modules:
        sys.modules[f"module-{number}"] = types.ModuleType("module")
        settle()
        counts.append(gc.get_freeze_count())
    return counts

cycle = []
cycle.append(cycle)
del cycle
print(*count(MODULES))
"""


def run(modules: str, environment: dict[str, str]) -> list[int]:
    """The number of hidden objects after each call."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("MODULES", modules)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(count) for count in done.stdout.split()]


@pytest.fixture
def worker() -> dict[str, str]:
    return {"SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"}


def test_worker_hides_what_it_has_imported(worker: dict[str, str]) -> None:
    (hidden,) = run("[1]", worker)
    assert hidden > 1000


def test_worker_hides_nothing_more_until_it_has_imported_more(worker: dict[str, str]) -> None:
    first, second, third = run("[1, 1, 2]", worker)
    assert second <= first < third  # a hidden object that is no longer used is freed


def test_worker_that_always_imports_something_does_not_hide_everything(
    worker: dict[str, str],
) -> None:
    counts = run("range(30)", worker)
    assert counts[0] < counts[9]
    assert counts[-1] <= counts[12]


def test_other_processes_keep_their_garbage_collector() -> None:
    assert run("[1]", {}) == [0]
