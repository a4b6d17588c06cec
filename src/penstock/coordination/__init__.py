"""A tree of small nodes with versions, watches and sessions: where a cluster keeps who is what.

One interface for the embedded store and for ZooKeeper, and the election recipes on top of it.
"""
