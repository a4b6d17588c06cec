"""Penstock in Spark: the data source `format("penstock")`, with pipelines, tables and jobs on it.

Executors need no broker: this package imports only client, protocol, config and model.
"""
