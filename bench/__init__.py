"""Benchmarks, each a ratio to a peer in the same run. Not part of the product."""
