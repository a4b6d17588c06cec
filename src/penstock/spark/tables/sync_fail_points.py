"""Where a sync can be made to stop, for tests of kills; see `halting`. Batches count from 1 in each
run of a sync.
"""

import enum


class SyncFailPoint(enum.StrEnum):
    PLANNED = "table-planned"  # nothing is written
    WRITING = "table-writing"  # a task has written some of its rows
    WRITTEN = "table-written"  # files are there, and in no table
    COMMITTED = "table-committed"  # and nobody is told yet
