"""Metrics and health of a broker over HTTP. Reads only `statistics()` snapshots."""
