"""The lag of a streaming query, from the progress that Spark reports."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.spark.source.offset_json import read_offset
from penstock.spark.source.plan import OffsetsBehind, offsets_behind


def source_behind(source: Mapping[str, Any]) -> OffsetsBehind | None:
    """The lag of one source of `query.lastProgress["sources"]` after its last batch: smallest,
    largest, average and total. None: nothing was read yet."""
    latest, end = (
        parse_reported(source.get("latestOffset")),
        parse_reported(source.get("endOffset")),
    )
    if not latest or not end:
        return None
    return offsets_behind(read_offset(end).offsets, read_offset(latest).offsets)


def parse_reported(offset: Any) -> Any:
    """An offset in a progress report, which Spark gives as JSON text or already parsed."""
    return json.loads(offset) if isinstance(offset, str) else offset
