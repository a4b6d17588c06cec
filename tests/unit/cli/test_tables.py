"""Tables on a terminal: headers and numbers are never broken, however narrow it is."""

import io
import sys

import pytest

from penstock.cli.tables import fit_widths, show_table
from penstock.cli.topic_commands import PARTITION_COLUMNS


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch, rows: list[list[object]], *, columns: int = 80
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", terminal := _Terminal())
    show_table(PARTITION_COLUMNS, rows)
    return [line.rstrip() for line in terminal.getvalue().splitlines()]


def partition_row(*, offset: int, size: int) -> list[object]:
    return [0, 1, 12, "1,2,3", "1,2,3", 0, offset, offset, size]


@pytest.mark.parametrize(("offset", "size"), [(5, 500), (12_345_678, 1_234_567_890)])
def test_a_topic_description_fits_into_80_columns_with_whole_words(
    monkeypatch: pytest.MonkeyPatch, offset: int, size: int
) -> None:
    lines = shown(monkeypatch, [partition_row(offset=offset, size=size)])
    assert max(len(line) for line in lines) <= 80
    rule = next(index for index, line in enumerate(lines) if "──" in line)
    words = [word for line in lines[:rule] for word in line.split()]
    assert sorted(words) == sorted(" ".join(PARTITION_COLUMNS).split())
    assert lines[rule + 1].split() == ["0", "1", "12", "1,2,3", "1,2,3", "0"] + [
        str(number) for number in (offset, offset, size)
    ]


def test_a_table_that_is_too_wide_is_printed_as_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    row = partition_row(offset=10**15, size=10**18)
    lines = shown(monkeypatch, [row, row])
    assert lines[:9] == [
        f"{column:14}  {cell}" for column, cell in zip(PARTITION_COLUMNS, row, strict=True)
    ]
    assert lines[9] == ""
    assert lines[10:19] == lines[:9]


def test_a_wide_terminal_keeps_headers_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, [partition_row(offset=5, size=500)], columns=120)
    assert any("high watermark" in line for line in lines)


def test_text_columns_shrink_before_numbers_are_cut() -> None:
    rows = [["a" * 60, "123456789"]]
    assert fit_widths(("name", "bytes"), rows, (False, True), 40) == [31, 9]
    assert fit_widths(("name", "bytes"), rows, (False, True), 21) == [12, 9]
    assert fit_widths(("name", "bytes"), rows, (False, True), 20) is None
