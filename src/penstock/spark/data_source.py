# ruff: noqa: N802 - Spark names these methods
"""The data source `format("penstock")`: gives Spark its schema, readers and writers.

Every Spark process that looks for data sources imports this module, so it imports little itself.
"""

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.warm_process import settle

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from penstock.spark.connect.connections import BlockingClient
    from penstock.spark.source.history import History, OpenHistory
    from penstock.spark.source.options import SourceOptions


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        from penstock.spark.option_values import RawOptions
        from penstock.spark.source.schema import full_schema

        return full_schema(include_headers=RawOptions(self.options).flag("includeHeaders", False))

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from penstock.spark.source.batch_reader import FilteringReader, PenstockReader
        from penstock.spark.source.options import ReadMode, parse_source_options
        from penstock.spark.source.schema import find_columns

        options = parse_source_options(self.options, ReadMode.BATCH)
        settle()
        kind = FilteringReader if options.pushes_filters else PenstockReader
        return kind(options, find_columns(schema), find_history(options))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from penstock.spark.source.options import ReadMode, parse_source_options
        from penstock.spark.source.schema import find_columns
        from penstock.spark.source.stream_reader import PenstockStreamReader

        options = parse_source_options(self.options, ReadMode.STREAM)
        settle()
        return PenstockStreamReader(options, find_columns(schema), find_history(options))

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        from penstock.spark.sink.batch_writer import PenstockBatchWriter

        settle()
        return PenstockBatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":
        from penstock.spark.sink.stream_writer import PenstockStreamWriter

        settle()
        return PenstockStreamWriter(self.options, schema, overwrite)


def find_history(options: "SourceOptions") -> "OpenHistory | None":
    """How to open the tables that the option `history` names; None without the option."""
    return None if options.history is None else partial(_open_history, options.history)


def _open_history(folder: str, client: "BlockingClient") -> "History":
    from penstock.spark.tables.history import TableHistory  # imports what reads tables

    return TableHistory(folder, client)
