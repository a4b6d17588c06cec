"""Records that a topic no longer holds and a table still does, as the source sees them.

Only the interface: `tables` implements it and `data_source` hands it in, so that the source does
not depend on tables.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.source.plan import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


class History(Protocol):
    def earliest(self, log_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first readable offset of each partition, in the table or in the log."""
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first record that is not older, for those partitions whose table has one."""
        ...

    def plan_tasks(self, ranges: Sequence[OffsetRange]) -> "list[InputPartition]":
        """Tasks that read each range from the table as far as it goes, then from the log."""
        ...


OpenHistory = Callable[[BlockingClient], History]  # picklable: it travels with the reader
