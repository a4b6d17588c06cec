"""What is wrong with a pipeline's file, each with its line. Nothing is repaired here."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple


class Problem(NamedTuple):
    line: int  # counted from 1, as editors do
    message: str  # what, and what to write instead


class PipelineInvalid(ValueError):
    """A file that cannot be run. Its text has a line for each problem, in the file's order."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = sorted(problems)
        super().__init__("\n".join(f"{file}:{each.line}: {each.message}" for each in self.problems))


class Problems:
    """Gathers them, so that a file is put right in one go. Owned by the one reading."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[Problem] = []

    def add(self, line: int, message: str) -> None:
        self._found.append(Problem(line, message))

    def check(self) -> None:
        """Raises what was found."""
        if self._found:
            raise PipelineInvalid(self.file, self._found)


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or nothing when nothing is near."""
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
