"""The output mode "update" for topics. Spark rejects it for sinks written in Python, so each
micro-batch is written as a batch. Not needed for any other mode.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_updates(writer: "DataStreamWriter", options: Mapping[str, str]) -> "DataStreamWriter":
    """`write_updates(rows.writeStream.outputMode("update"), options).start()`, with the sink's
    options. Exactly once by default, because this is the micro-batch's only write."""
    batch_options = {**options, "oncePerMicroBatch": "true"}

    def write(rows: "DataFrame", _batch_id: int) -> None:
        rows.write.format("penstock").options(**batch_options).mode("append").save()

    return writer.foreachBatch(write)
