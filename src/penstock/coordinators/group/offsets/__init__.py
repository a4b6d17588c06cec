"""Committed offsets: commands, expiration, and the older store in ZooKeeper."""
