"""How far behind a streaming query is, out of the progress that Spark reports for it."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.spark.source.offset_json import read_offset
from penstock.spark.source.plan import OffsetsBehind, offsets_behind


def source_behind(source: Mapping[str, Any]) -> OffsetsBehind | None:
    """Of one source of `query.lastProgress["sources"]`: least, most, average and all offsets
    between where its last batch ended and where the log did. None: nothing was read yet."""
    latest, end = (
        parse_reported(source.get("latestOffset")),
        parse_reported(source.get("endOffset")),
    )
    if not latest or not end:
        return None
    return offsets_behind(read_offset(end).offsets, read_offset(latest).offsets)


def parse_reported(offset: Any) -> Any:
    """An offset in a progress: Spark gives JSON as text or parsed, as it pleases."""
    return json.loads(offset) if isinstance(offset, str) else offset
