"""Prints tables on stdout: drawn by rich on a terminal, otherwise as plain columns.

On a terminal a header breaks only between words and a number never; a table that is too wide for
that is printed as one block per row.
"""

import sys
from collections.abc import Sequence

_LEAST_TEXT = 12  # a cell of text may be folded to this width
_EDGES = 2  # columns of characters that rich adds left and right
_GAPS = (3, 1)  # between columns: rich's padding, and without it


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


def fit_widths(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_number: Sequence[bool],
    available: int,
) -> list[int] | None:
    """The columns' widths within `available` characters; None if they do not fit."""
    cells = [max((len(row[index]) for row in rows), default=0) for index in range(len(columns))]
    words = [max(len(word) for word in (column.split() or [""])) for column in columns]
    widths = [
        max(word, cell if number else min(cell, _LEAST_TEXT))
        for word, cell, number in zip(words, cells, is_number, strict=True)
    ]
    spare = available - sum(widths)
    if spare < 0:
        return None
    # Space goes to folded cells first, then to headers of several words.
    for wanted in (cells, [len(column) for column in columns]):
        for index, width in enumerate(wanted):
            growth = max(0, min(spare, width - widths[index]))
            widths[index] += growth
            spare -= growth
    return widths


def _text(cell: object) -> str:
    return "-" if cell is None else str(cell)


def _show_drawn(
    columns: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool]
) -> None:
    from rich.console import Console

    console = Console(file=sys.stdout)
    for gap in _GAPS:
        room = console.width - _EDGES - gap * (len(columns) - 1)
        widths = fit_widths(columns, rows, is_number, room)
        if widths is not None:
            console.print(_draw(columns, rows, is_number, widths, padding=gap // 2))
            return
    _show_blocks(columns, rows)


def _draw(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_number: Sequence[bool],
    widths: Sequence[int],
    *,
    padding: int,
) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, padding))
    for column, right, width in zip(columns, is_number, widths, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold", width=width)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _show_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = max(len(column) for column in columns)
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            print(f"{column.ljust(width)}  {cell}".rstrip())
        print()


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
