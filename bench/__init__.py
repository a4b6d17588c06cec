"""Benchmarks: each compares Penstock with a peer in the same run. Not part of the product."""
