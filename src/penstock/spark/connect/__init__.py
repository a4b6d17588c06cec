"""Connections of Spark processes to brokers: one event loop on a thread, fork-safe."""
