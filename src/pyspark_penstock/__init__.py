"""Lets Spark find `format("penstock")` without registration: Spark imports every package named
`pyspark_*` and takes its `DefaultSource`. Contains nothing else.
"""

from penstock.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
