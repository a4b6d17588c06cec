"""Measures what checking records costs where the walk over them is not compiled.

Measured once, at start, in less than a millisecond: operators see which build they run.
"""

import time

from penstock.protocol import record_walk
from penstock.protocol.batch import HEADER_BYTES
from penstock.protocol.build import find_build
from penstock.protocol.records import Record, build_batch
from penstock.protocol.varint import MAX_INT64, MIN_INT64

_RECORDS = 100
_VALUE = bytes(100)


def find_validation_warning() -> str | None:
    """A line for the log of a broker that checks records in plain Python; None: it is compiled."""
    if find_build() == "compiled":
        return None
    return (
        f"records of produced batches are checked by uncompiled code, which takes about "
        f"{_measure_us():.1f} us for each (compiled: 0.02 us); install Penstock with a C compiler "
        f"present (pip install .), or set penstock.validate.records=false where that is too slow"
    )


def _measure_us() -> float:
    batch = build_batch([Record(index, 0, None, _VALUE) for index in range(_RECORDS)])
    data = bytes(batch[HEADER_BYTES:])
    began_s = time.perf_counter()
    record_walk.walk_records(data, _RECORDS, MIN_INT64, MAX_INT64, 0, False, [])
    return (time.perf_counter() - began_s) * 1e6 / _RECORDS
