"""What the log costs over the raw operation: appends, look-ups, recovery, compaction, flushes."""
