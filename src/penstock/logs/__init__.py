"""Structured log events on the standard library's `logging`."""
