"""The result of checking log files: problems, notes and counts. Collects, decides nothing."""

from collections.abc import Callable
from typing import NamedTuple


class LogFinding(NamedTuple):
    kind: str  # a stable word for scripts, such as `crc` or `time-index`
    path: str
    position: int | None  # the byte in a binary file
    line: int | None  # the line in a text file, counted from 1
    message: str
    is_problem: bool  # False: worth knowing, but nothing is wrong

    @property
    def location(self) -> str:
        """The file and the position or line in it."""
        if self.position is not None:
            return f"{self.path}, position {self.position}"
        return self.path if self.line is None else f"{self.path}, line {self.line}"

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


class LogFindings:
    """Filled by one check, in the order of discovery."""

    def __init__(self, on_finding: Callable[[LogFinding], None] = lambda finding: None) -> None:
        self.all: list[LogFinding] = []
        self.files = 0
        self.batches = 0
        self.records = 0  # only counted where records were decoded
        self.size_bytes = 0
        self._on_finding = on_finding

    @property
    def problems(self) -> list[LogFinding]:
        return [finding for finding in self.all if finding.is_problem]

    @property
    def notes(self) -> list[LogFinding]:
        return [finding for finding in self.all if not finding.is_problem]

    @property
    def is_clean(self) -> bool:
        return not any(finding.is_problem for finding in self.all)

    def problem(
        self,
        kind: str,
        path: str,
        message: str,
        *,
        position: int | None = None,
        line: int | None = None,
    ) -> None:
        self._add(LogFinding(kind, path, position, line, message, True))

    def note(
        self,
        kind: str,
        path: str,
        message: str,
        *,
        position: int | None = None,
        line: int | None = None,
    ) -> None:
        self._add(LogFinding(kind, path, position, line, message, False))

    def absorb(
        self, other: "LogFindings", is_wanted: Callable[[LogFinding], bool] = lambda finding: True
    ) -> None:
        """Add what another check counted, and those of its findings that are wanted."""
        self.files += other.files
        self.batches += other.batches
        self.records += other.records
        self.size_bytes += other.size_bytes
        for finding in other.all:
            if is_wanted(finding):
                self._add(finding)

    def count_file(self, size_bytes: int) -> None:
        self.files += 1
        self.size_bytes += size_bytes

    def _add(self, finding: LogFinding) -> None:
        self.all.append(finding)
        self._on_finding(finding)
