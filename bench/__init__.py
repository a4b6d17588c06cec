"""Benchmarks, each relative to a peer in the same run. Not part of the product."""
