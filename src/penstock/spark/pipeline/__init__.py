"""Pipelines: one file declares sources, SQL and sinks; Spark runs it.

Reading and checking a file (`document`, `reading`, `spec`, `checks`) needs no Spark. `build`,
`values`, `writing` and `run` import PySpark, so callers import them lazily.
"""

from collections.abc import Mapping
from typing import Any

from penstock.spark.pipeline.python_document import Declaration

__all__ = ["declare"]


def declare(
    *,
    sinks: Mapping[str, Any],
    sources: Mapping[str, Any] | None = None,
    views: Mapping[str, Any] | None = None,
    functions: Mapping[str, Any] | None = None,
    **top: object,
) -> Declaration:
    """A pipeline, for `penstock pipeline run FILE.py`: entries have the names of the YAML file,
    and where that names a Python function, the function itself may stand."""
    entries = {**top, "sources": sources, "functions": functions, "views": views, "sinks": sinks}
    return Declaration(entries)
