"""Delayed messages: throughput beside plain ones, lateness, and a start with many that wait."""
