"""Timers and delayed operations: what waits, for a change or for its deadline."""
