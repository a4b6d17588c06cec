"""Fail points of a sync, at which tests stop and kill it; see `sink.exactly_once.fail_points`.
Batches are counted from 1 in each run.
"""

import enum


class SyncFailPoint(enum.StrEnum):
    PLANNED = "table-planned"  # nothing is written yet
    WRITING = "table-writing"  # a task has written some of its rows
    WRITTEN = "table-written"  # files are written but not committed
    COMMITTED = "table-committed"  # but progress is not reported yet
