"""Seconds per test folder, printed at the end of a run, so that whoever adds tests sees the cost.

With several workers the seconds of all of them are added up: they exceed the run's own time.
"""

from collections import defaultdict

import pytest


def folder_of(test: str) -> str:
    """`tests/unit/storage` for unit tests, `tests/cluster` for all others."""
    folders = test.partition("::")[0].split("/")[:-1]
    return "/".join(folders[: 3 if folders[1:2] == ["unit"] else 2])


class FolderSeconds:
    """A pytest plugin of the process that reports, which receives every worker's results."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[folder_of(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line("seconds per folder, all workers added up:")
        for folder, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"  {seconds:8.1f}  {folder}")
