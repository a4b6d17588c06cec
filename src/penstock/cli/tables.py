"""Prints tables on stdout: drawn by rich on a terminal, otherwise as plain columns."""

import sys
from collections.abc import Sequence


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns of numbers are right-aligned."""
    texts = [[_text(cell) for cell in row] for row in rows]
    is_number = [
        bool(rows) and all(isinstance(row[index], int | None) for row in rows)
        for index in range(len(columns))
    ]
    if sys.stdout.isatty():
        _show_drawn(columns, texts, is_number)
    else:
        _show_plain(columns, texts, is_number)


def _text(cell: object) -> str:
    return "-" if cell is None else str(cell)


def _show_drawn(
    columns: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column, right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console(file=sys.stdout).print(table)


def _show_plain(
    columns: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool]
) -> None:
    lines = [columns, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        print("  ".join(cells).rstrip())
