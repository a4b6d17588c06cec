"""Penstock: a Kafka-compatible log in Python."""

__version__ = "0.1.0"
