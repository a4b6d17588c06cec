"""Rewrites the offsets in a query's checkpoint so that Spark's own Kafka connector continues it.

Works on the files of a checkpoint whose query does not run. Invariant: each file is replaced as a
whole, so that an interrupted rewrite is simply repeated.
"""

import json
import os
from pathlib import Path

from penstock.spark.failures import SparkWorkFailed
from penstock.spark.source.offset_json import strip_offset

_VERSION = "v1"
_NO_OFFSET = "-"  # a source that has read nothing yet
_HEADER_LINES = 2  # the version, and the batch's metadata


class CheckpointUnusable(SparkWorkFailed):
    """The folder is not a checkpoint that can be rewritten now."""


def strip_checkpoint(folder: Path) -> int:
    """Remove from all offsets what only our source writes; returns how many files changed."""
    batches = _numbered(folder / "offsets")
    if not batches:
        raise CheckpointUnusable(
            f"{folder} is not a checkpoint: there is no batch in {folder / 'offsets'}; name a "
            "query's checkpointLocation, on a local disk"
        )
    last = max(batches)
    if last not in _numbered(folder / "commits"):
        raise CheckpointUnusable(
            f"batch {last} of {folder} was planned and not completed: run the query once more with "
            'format("penstock"), then repeat this'
        )
    stripped = {path: _strip(path) for path in batches.values()}
    changed = {path: text for path, text in stripped.items() if text != path.read_text()}
    for path, text in changed.items():
        _replace(path, text)
    return len(changed)


def _numbered(folder: Path) -> dict[int, Path]:
    """The files of Spark's log of batches, by batch id."""
    if not folder.is_dir():
        return {}
    return {int(path.name): path for path in folder.iterdir() if path.name.isdecimal()}


def _strip(path: Path) -> str:
    lines = path.read_text().split("\n")
    if lines[0] != _VERSION or len(lines) < _HEADER_LINES:
        raise CheckpointUnusable(
            f"{path} has the format {lines[0][:20]!r} instead of {_VERSION!r}: this version "
            "cannot rewrite it"
        )
    return "\n".join([*lines[:_HEADER_LINES], *map(_strip_line, lines[_HEADER_LINES:])])


def _strip_line(line: str) -> str:
    """The offset of one source; those of other formats stay as they are."""
    if line == _NO_OFFSET or not line.startswith("{"):
        return line
    offset = json.loads(line)
    stripped = strip_offset(offset)
    return line if stripped == offset else json.dumps(stripped, separators=(",", ":"))


def _replace(path: Path, text: str) -> None:
    """Hadoop's checksum of the old content would make the new one unreadable."""
    fresh = path.with_name(f".{path.name}.stripped")
    fresh.write_text(text)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    os.replace(fresh, path)
