"""Balancing a cluster: bytes copied against the least possible, time, and latency meanwhile."""
