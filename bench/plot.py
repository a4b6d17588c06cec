"""Small hand-written SVG charts, so that benchmarks need no plotting library."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#9d9d9d")
BAR, GAP, PLOT_HEIGHT = 44, 48, 240
LEFT, TOP, BOTTOM = 24, 64, 56
TEXT = 'font-family="sans-serif" fill="#333"'


def bar_chart(path: Path, title: str, groups: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """One cluster of bars per group, one colour per name; every bar shows its value."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    largest = max((value for bars in groups.values() for value in bars.values()), default=0) or 1
    width = max(LEFT * 2 + sum(len(bars) * BAR + GAP for bars in groups.values()), 420)
    shapes = [_text(LEFT, 24, f"{title} ({unit})", size=15), *_legend(colours)]
    left = LEFT + GAP // 2
    for group, bars in groups.items():
        shapes += _cluster(left, bars, colours, largest)
        centre = left + len(bars) * BAR // 2
        shapes.append(_text(centre, TOP + PLOT_HEIGHT + 24, group, anchor="middle"))
        left += len(bars) * BAR + GAP
    base = TOP + PLOT_HEIGHT
    shapes.append(f'<path d="M{LEFT} {base}H{width - LEFT}" stroke="#333"/>')
    path.parent.mkdir(exist_ok=True)
    path.write_text(_document(width, TOP + PLOT_HEIGHT + BOTTOM, shapes))


def _cluster(
    left: int, bars: Mapping[str, float], colours: Mapping[str, str], largest: float
) -> list[str]:
    shapes: list[str] = []
    for index, (name, value) in enumerate(bars.items()):
        height = max(round(value / largest * PLOT_HEIGHT, 1), 1)
        x, y = left + index * BAR, TOP + PLOT_HEIGHT - height
        shapes.append(
            f'<rect x="{x + 3}" y="{y}" width="{BAR - 6}" height="{height}" '
            f'fill="{colours[name]}"><title>{escape(name)}: {value:g}</title></rect>'
        )
        shapes.append(_text(x + BAR // 2, y - 5, f"{value:.3g}", size=11, anchor="middle"))
    return shapes


def _legend(colours: Mapping[str, str]) -> list[str]:
    shapes: list[str] = []
    left = LEFT
    for name, colour in colours.items():
        shapes.append(f'<rect x="{left}" y="34" width="11" height="11" fill="{colour}"/>')
        shapes.append(_text(left + 16, 44, name, size=12))
        left += 34 + 7 * len(name)
    return shapes


def _text(x: float, y: float, text: str, *, size: int = 13, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" {TEXT}>'
        f"{escape(text)}</text>"
    )


def _document(width: int, height: int, shapes: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
    )
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, background, *shapes, "</svg>", ""])
