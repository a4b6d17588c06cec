"""The table of results: one row per program, one column per number of brokers, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.outside.trials import Trial, Verdict

START = "<!-- written by python -m tests.outside -->"
END = "<!-- end of the table -->"


def table_of(trials: Sequence[Trial]) -> str:
    counts = sorted({trial.brokers for trial in trials})
    heads = ["program", "version", *map(_count_text, counts), "steps"]
    rows = [heads, ["---"] * len(heads)]
    rows += [_row(name, trials, counts) for name in _names(trials)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def replace_table(document: Path, table: str) -> None:
    """Replaces everything between the two marks."""
    head, start, rest = document.read_text().partition(START)
    _, end, tail = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{document} has no lines {START!r} and {END!r} to write between")
    document.write_text(f"{head}{START}\n{table}\n{END}{tail}")


def _names(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.entry.name for trial in trials))


def _row(name: str, trials: Sequence[Trial], counts: Sequence[int]) -> list[str]:
    of_name = {trial.brokers: trial for trial in trials if trial.entry.name == name}
    entry = next(iter(of_name.values())).entry
    verdicts = [_cell(of_name[count]) if count in of_name else "not run" for count in counts]
    return [entry.title, entry.version, *verdicts, ", ".join(entry.steps)]


def _cell(trial: Trial) -> str:
    if trial.verdict is not Verdict.FAILED:
        return str(trial.verdict.value)
    missing = next((step for step in trial.entry.steps if step not in trial.passed), "the end")
    return f"{trial.verdict.value} at {missing}"


def _count_text(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"
