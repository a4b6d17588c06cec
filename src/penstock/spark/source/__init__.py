"""`format("penstock")` for reading: options, offsets, planning, and the tasks that fetch."""
