"""Fetches with a bare socket: how fast the broker serves when the client costs almost nothing."""

from __future__ import annotations

import struct
import time
from datetime import timedelta
from typing import Any

from bench.broker.wire import Wire
from penstock.client.call import compose
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import LAST_OFFSET_DELTA_POSITION, LENGTH_POSITION, LOG_OVERHEAD
from penstock.protocol.messages import get_request_schema

PARTITION_MAX_BYTES = 1 << 20
MAX_BYTES = 50 << 20
DEADLINE_S = 240.0
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


def read_all(wire: Wire, topic: str, partitions: int, records: int) -> float:
    """Seconds until all records have arrived."""
    offsets = [0] * partitions
    start = time.perf_counter()
    while sum(offsets) < records:
        answer = wire.ask(_request(topic, offsets))
        for partition in answer.responses[0].partitions:
            if partition.error_code.value:
                raise RuntimeError(f"{topic}-{partition.partition_index}: {partition.error_code!r}")
            index = partition.partition_index
            offsets[index] = _next_offset(partition.records, offsets[index])
        if time.perf_counter() - start > DEADLINE_S:
            raise RuntimeError(f"only {sum(offsets)} of {records} records arrived")
    return time.perf_counter() - start


def _request(topic: str, offsets: list[int]) -> Any:
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": PARTITION_MAX_BYTES}
        for index, offset in enumerate(offsets)
    ]
    fields = {
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "max_bytes": MAX_BYTES,
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    return compose(get_request_schema(ApiKey.FETCH, 12), fields)


def _next_offset(records: memoryview | None, offset: int) -> int:
    """The offset after the last complete batch; the last batch may be truncated."""
    if records is None:
        return offset
    position, end = 0, len(records)
    while end - position > LAST_OFFSET_DELTA_POSITION + 4:
        (length,) = _INT32.unpack_from(records, position + LENGTH_POSITION)
        following = position + LOG_OVERHEAD + length
        if following > end:
            break
        (base,) = _INT64.unpack_from(records, position)
        (delta,) = _INT32.unpack_from(records, position + LAST_OFFSET_DELTA_POSITION)
        offset = base + delta + 1
        position = following
    return offset
