"""Column charts as hand-written SVG, which any browser shows without further files. Pure."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 44, 64
_BLUE, _DARK, _LIGHT = "#4c78a8", "#333", "#ddd"
_MOST_LABELS = 12
_LABEL_CHARACTERS = 18
_STEPS = 4  # horizontal grid lines


class Column(NamedTuple):
    label: str
    value: float


def column_chart(title: str, unit: str, columns: Sequence[Column]) -> str:
    """A whole SVG document. Each column shows its value as a tooltip."""
    largest = max((column.value for column in columns), default=0) or 1
    shapes = [
        _text(_LEFT, 24, f"{title} ({unit})", size=15),
        *_lines(largest),
        *_columns(columns, largest),
        *_labels(columns),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    )
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([head, background, *shapes, "</svg>", ""])


def _lines(largest: float) -> list[str]:
    shapes = []
    for step in range(_STEPS + 1):
        y = _y(largest * step / _STEPS, largest)
        colour = _LIGHT if step else _DARK
        shapes.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{colour}"/>')
        amount = show_amount(largest * step / _STEPS)
        shapes.append(_text(_LEFT - 6, y + 4, amount, size=11, anchor="end"))
    return shapes


def _columns(columns: Sequence[Column], largest: float) -> list[str]:
    slot = (_WIDTH - _LEFT - _RIGHT) / max(len(columns), 1)
    bar = max(min(slot * 0.8, 60), 1)
    shapes = []
    for index, column in enumerate(columns):
        x = _LEFT + slot * (index + 0.5) - bar / 2
        y = _y(column.value, largest)
        shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar:.1f}" height="{_y(0, largest) - y:.1f}" '
            f'fill="{_BLUE}"><title>{escape(column.label)}: {column.value:,.6g}</title></rect>'
        )
    return shapes


def _labels(columns: Sequence[Column]) -> list[str]:
    """As many labels as fit, always including the first."""
    slot = (_WIDTH - _LEFT - _RIGHT) / max(len(columns), 1)
    every = -(-len(columns) // _MOST_LABELS) or 1
    y = _HEIGHT - _BOTTOM + 16
    shapes = []
    for index in range(0, len(columns), every):
        x = _LEFT + slot * (index + 0.5)
        text = _shortened(columns[index].label)
        turned = f'transform="rotate(20 {x:.1f} {y})"'
        shapes.append(_text(x, y, text, size=11, more=turned))
    return shapes


def _y(value: float, largest: float) -> float:
    height = _HEIGHT - _TOP - _BOTTOM
    return _TOP + height * (1 - value / largest)


def show_amount(value: float) -> str:
    """The value with three digits and a unit letter."""
    for letter, unit in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def _shortened(text: str) -> str:
    if len(text) <= _LABEL_CHARACTERS:
        return text
    return f"{text[: _LABEL_CHARACTERS - 1]}…"


def _text(
    x: float, y: float, text: str, *, size: int = 13, anchor: str = "start", more: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {more} '
        f'font-family="sans-serif" fill="{_DARK}">{escape(text)}</text>'
    )
