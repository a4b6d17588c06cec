"""Coordinator runtime: shards, replay and replies that wait for their records to commit."""
