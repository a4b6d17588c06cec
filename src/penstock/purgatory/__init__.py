"""Timers and delayed operations: requests that wait for a condition or for their timeout."""
