"""The commit log engine: one log for all partitions of a log directory, and a queue for each."""
