"""Mistakes in a pipeline's file, each with its line. Only reports, repairs nothing."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple


class Problem(NamedTuple):
    line: int  # counted from 1, as in editors
    message: str  # what is wrong, and what to write instead


class PipelineInvalid(ValueError):
    """The file cannot be run. The text has one line per problem, ordered by line number."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = sorted(problems)
        super().__init__(
            "\n".join(f"{file}:{problem.line}: {problem.message}" for problem in self.problems)
        )


class Problems:
    """Collects all problems of a file, so that it can be corrected in one go. Owned by one
    reading."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.unreadable: set[str] = set()  # sources and views whose mistakes are reported already
        self._problems: list[Problem] = []

    def add(self, line: int, message: str) -> None:
        self._problems.append(Problem(line, message))

    def check(self) -> None:
        """Raises PipelineInvalid if there are problems."""
        if self._problems:
            raise PipelineInvalid(self.file, self._problems)


def suggest(name: str, names: Iterable[str]) -> str:
    """` (did you mean X?)`, or an empty string if no name is similar."""
    near = get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
