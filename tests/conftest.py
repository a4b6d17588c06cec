"""Figures that tests report (recoveries done, cases tried), summed and shown at the end of a run.

Under xdist each worker sends its figures to the controller, and `tests.schedule` decides which
worker runs what. Ctrl-C works even if the tests were started in the background.
"""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import settings
from tests.profile import is_long
from tests.schedule import SideBySide
from tests.seconds import FolderSeconds
from tests.zookeeper import zookeeper_connect as zookeeper_connect

from penstock.protocol.build import find_build

gc.disable()  # until all tests are collected

_FIGURES: Counter[str] = Counter()
_NOTES: dict[str, set[str]] = {}

# No deadlines: how long an example takes depends on what else the machine does. `make test` draws
# the same examples every time, so that the same commit always has the same result; the long
# profiles draw new ones, and a failure prints how to reproduce it.
settings.register_profile("same_examples", deadline=None, derandomize=True)
settings.register_profile("new_examples", deadline=None, print_blob=True)
settings.load_profile("new_examples" if is_long() else "same_examples")

# A script that starts the tests in the background makes them ignore Ctrl-C, and with them every
# process that they start: a test that interrupts one would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Set where a compiled copy of the sources is first in PYTHONPATH, so that it is really tested.
if os.environ.get("PENSTOCK_TEST_BUILD", find_build()) != find_build():
    pytest.exit(f"PENSTOCK_TEST_BUILD is not {find_build()}, the build that runs", returncode=2)


def pytest_report_header() -> str:
    return f"penstock: {find_build()} build"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide | None:
    return SideBySide(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Ten thousand collected tests live until the end: excludes them from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def record_figure(name: str, value: int = 1) -> None:
    """Adds to a figure of the whole run. Tests get it as the fixture of the same name."""
    _FIGURES[name] += value


@pytest.fixture(name="record_figure")
def _record_figure() -> object:
    return record_figure


@pytest.fixture(name="record_note")
def _record_note() -> object:
    return record_note


def record_note(name: str, lines: Iterable[str]) -> None:
    """Shows lines under a name, each once, however many tests report it."""
    _NOTES.setdefault(name, set()).update(lines)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = dict(_FIGURES)
        output["notes"] = {name: sorted(lines) for name, lines in _NOTES.items()}


class _Collector:
    """Collects the figures of the workers in the process that reports."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output = getattr(node, "workeroutput", {})
        _FIGURES.update(output.get("figures", {}))
        for name, lines in output.get("notes", {}).items():
            record_note(name, lines)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Collector(), "figures")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FolderSeconds(), "seconds per folder")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _lines(_FIGURES, _NOTES):
        terminalreporter.write_line(line)


def _lines(figures: Mapping[str, int], notes: Mapping[str, set[str]]) -> Iterator[str]:
    for name, value in sorted(figures.items()):
        yield f"{name}: {value:,}"
    for name, lines in sorted(notes.items()):
        yield f"{name}:"
        yield from (f"  {line}" for line in sorted(lines))
