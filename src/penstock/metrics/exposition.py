"""Writes metric families in Prometheus' text format, in chunks of some hundred lines.

A generator, so that the caller can let the event loop run between two chunks. A chunk may be empty.
Invariant: the lines of a family follow each other, as the format requires.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from time import perf_counter

from penstock.metrics.families import Dialect, Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CHUNK_LINES = 1_000
CHUNK_S = 0.001  # a chunk ends after this long, too: some families take time to compute


def render(
    families: Iterable[Family], dialect: Dialect, names: Sequence[str] = ()
) -> Iterator[bytes]:
    """Families whose names begin with one of `names`, or all."""
    beginnings = tuple(names) or ("",)
    pending: list[str] = []
    began_s = perf_counter()
    for family in families:
        if perf_counter() - began_s >= CHUNK_S:  # to make the family, or to skip others
            yield "".join(pending).encode()
            pending = []
            began_s = perf_counter()
        name = family.full_name(dialect)
        if not name.startswith(beginnings):
            continue
        pending.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind.value}\n")
        samples = iter(family.samples)
        while batch := [f"{name}{rest} {value}\n" for rest, value in islice(samples, CHUNK_LINES)]:
            pending += batch
            if len(pending) >= CHUNK_LINES or perf_counter() - began_s >= CHUNK_S:
                yield "".join(pending).encode()
                pending = []
                began_s = perf_counter()
    if pending:
        yield "".join(pending).encode()
