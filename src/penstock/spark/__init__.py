"""The log in Spark: `format("penstock")`, its source, its sink, and pipelines on them.

Executors import this room with client, protocol, config and model alone: they need no broker.
"""
