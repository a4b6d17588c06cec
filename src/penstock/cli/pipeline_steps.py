"""The steps of a pipeline's trial run: a table, or with --json an object per step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from penstock.cli.connect import show_json
from penstock.cli.tables import show_table

if TYPE_CHECKING:
    from penstock.spark.pipeline.trying import TriedStep

_COLUMNS = ("step", "rows in", "rows out", "bad values", "violations")


def show_steps(steps: Iterator["TriedStep"], *, as_json: bool) -> None:
    """With --json, each as soon as it has run."""
    if as_json:
        for step in steps:
            show_json({**step._asdict(), "violations": dict(step.violations)})
        return
    tried = list(steps)
    show_table(_COLUMNS, [_line(step) for step in tried])
    for step in tried:
        for row in step.rows:
            typer.echo(f"{step.kind} {step.name}: {row}")


def _line(step: "TriedStep") -> list[object]:
    violations = ", ".join(f"{name} {count}" for name, count in step.violations.items())
    return [f"{step.kind} {step.name}", step.rows_in, step.rows_out, step.bad, violations]
