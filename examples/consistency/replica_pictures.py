"""Pictures of a partition's replicas and their offsets, as SVG. Pure: values in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

CELL, ROW, LEFT, TOP = 44, 62, 150, 84
BELOW = 96  # of the rows: names of offsets, and a caption
WRITTEN, COMMITTED, OPEN, DELETED = "#f2c894", "#a9cbe8", "#d9c6e6", "#e8e8e8"
COLOURS = {
    "committed": COMMITTED,
    "not yet committed": WRITTEN,
    "behind an open transaction": OPEN,
    "deleted": DELETED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    name: str
    state: str
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """Of the leader."""

    high_watermark: int
    last_stable_offset: int


def draw(
    title: str, caption: str, replicas: Sequence[ReplicaState], offsets: PartitionOffsets
) -> str:
    """A row of records for each replica, and a line for each offset of the partition."""
    most = max(replica.log_end_offset for replica in replicas)
    width = max(LEFT + (most + 2) * CELL, 760)
    bottom = TOP + len(replicas) * ROW
    shapes = [text(16, 28, title, size=16), *legend()]
    for number, replica in enumerate(replicas):
        shapes += row(TOP + number * ROW, replica, offsets)
    shapes += line("high watermark", offsets.high_watermark, bottom, 0, "#2b6ca3")
    shapes += line("last stable offset", offsets.last_stable_offset, bottom, 1, "#7d4d9e")
    shapes.append(text(16, bottom + BELOW - 14, caption, size=13))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + BELOW}" '
        f'viewBox="0 0 {width} {bottom + BELOW}">'
    )
    paper = f'<rect width="{width}" height="{bottom + BELOW}" fill="white"/>'
    return "\n".join([head, paper, *shapes, "</svg>", ""])


def row(top: int, replica: ReplicaState, offsets: PartitionOffsets) -> list[str]:
    shapes = [
        text(16, top + 18, replica.name, weight="bold"),
        text(16, top + 36, replica.state, size=12),
    ]
    for offset in range(replica.log_end_offset):
        colour = COLOURS[kind_of(offset, replica, offsets)]
        left = LEFT + offset * CELL
        shapes.append(
            f'<rect x="{left}" y="{top}" width="{CELL - 2}" height="30" rx="3" fill="{colour}"/>'
        )
        shapes.append(text(left + CELL // 2 - 1, top + 20, str(offset), anchor="middle"))
    end = LEFT + replica.log_end_offset * CELL
    shapes.append(text(end + 4, top + 20, f"end {replica.log_end_offset}", size=12))
    if replica.log_start_offset:
        left = LEFT + replica.log_start_offset * CELL
        shapes.append(text(left, top + 45, f"start {replica.log_start_offset}", size=12))
    return shapes


def kind_of(offset: int, replica: ReplicaState, offsets: PartitionOffsets) -> str:
    if offset < replica.log_start_offset:
        return "deleted"
    if offset >= offsets.high_watermark:
        return "not yet committed"
    return "committed" if offset < offsets.last_stable_offset else "behind an open transaction"


def line(name: str, offset: int, bottom: int, number: int, colour: str) -> list[str]:
    """Before the record with this offset. Lines at the same offset stand beside each other."""
    x = LEFT + offset * CELL - 1 - 3 * number
    y = bottom + 8 + 22 * number
    return [
        f'<path d="M{x} {TOP - 10}V{y}" stroke="{colour}" stroke-width="2"/>',
        text(x + 6, y + 4, f"{name} {offset}", size=12, colour=colour),
    ]


def legend() -> list[str]:
    shapes: list[str] = []
    left = 16
    for name, colour in COLOURS.items():
        shapes.append(f'<rect x="{left}" y="42" width="13" height="13" fill="{colour}"/>')
        shapes.append(text(left + 19, 53, name, size=12))
        left += 40 + 7 * len(name)
    return shapes


def text(
    x: int,
    y: int,
    words: str,
    *,
    size: int = 14,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#333",
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-family="sans-serif" font-size="{size}" fill="{colour}" '
        f'font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>'
    )
