"""The log's overhead over the raw operation: appends, look-ups, recovery, compaction, flushes."""
