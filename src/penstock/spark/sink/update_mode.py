"""The output mode "update" into topics. Spark refuses it to sinks that are written in Python, so
each micro-batch is written as a batch. Needed for nothing else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_updates(writer: "DataStreamWriter", options: Mapping[str, str]) -> "DataStreamWriter":
    """`write_updates(rows.writeStream.outputMode("update"), options).start()`, with the options of
    the sink. Exactly once, unless they say otherwise: this alone writes each micro-batch."""
    given = {**options, "oncePerMicroBatch": "true"}

    def write(rows: "DataFrame", _batch_id: int) -> None:
        rows.write.format("penstock").options(**given).mode("append").save()

    return writer.foreachBatch(write)
