"""Znodes with versions, watches and sessions: where a cluster keeps its metadata.

Two implementations of one interface: ZooKeeper for a cluster, an embedded store for a single
broker.
"""
