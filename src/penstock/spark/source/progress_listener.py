# ruff: noqa: N802 - methods have the names that Spark calls
"""Publishes where a query ended, for lag to be right also when no next batch is asked for.

The source publishes the start of each batch as it plans it; after the last batch of a query that is
stopped between two triggers, or that had a single one, nobody asks it any more. Spark tells a
listener in the driver what was processed: `spark.streams.addListener(GroupOffsetsListener())`.
"""

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.source.group_offsets import (
    GroupOffsetPublisher,
    PublishedGroup,
    read_published_group,
)
from penstock.spark.source.offset_json import Offsets, read_offset
from penstock.spark.source.progress import parse_reported


class GroupOffsetsListener(StreamingQueryListener):
    """Of all queries of a session. Publishes when a query ends: events come late, and one of a
    running query could set its group back."""

    def __init__(self) -> None:
        self._ended_at: dict[str, dict[PublishedGroup, Offsets]] = {}  # by the query's run

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        ends = {}
        for source in event.progress.sources:
            where = read_published_group(parse_reported(source.latestOffset))
            if where is not None and source.endOffset:
                ends[where] = read_offset(parse_reported(source.endOffset)).offsets
        if ends:
            self._ended_at[str(event.progress.runId)] = ends

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for where, offsets in self._ended_at.pop(str(event.runId), {}).items():
            client = shared_client(ClientSettings(where.bootstrap))
            GroupOffsetPublisher(client, where.group).publish(offsets)
