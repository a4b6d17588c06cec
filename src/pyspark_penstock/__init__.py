"""How Spark finds `format("penstock")` by itself: it imports every package named `pyspark_*` and
takes its `DefaultSource`. Nothing else is here.
"""

from penstock.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
