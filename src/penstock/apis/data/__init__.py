"""APIs that read and write logs: Produce, Fetch, ListOffsets and their helpers."""
