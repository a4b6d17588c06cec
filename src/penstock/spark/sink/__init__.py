"""`format("penstock")` for writing: batch and streaming sinks, at least once or exactly once."""
