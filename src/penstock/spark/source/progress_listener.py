# ruff: noqa: N802 - Spark names these methods
"""Publishes where a query ended, so that its lag is right although no further batch is planned.

The source publishes the start of each batch when it plans it. It is not called after the last batch
of a query that is stopped between two triggers or has a single one; a listener in the driver is:
`spark.streams.addListener(GroupOffsetsListener())`.
"""

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.spark.connect.connections import settings_of, shared_client
from penstock.spark.source.group_offsets import (
    GroupOffsetPublisher,
    PublishedGroup,
    read_published_group,
)
from penstock.spark.source.offset_json import Offsets, read_offset
from penstock.spark.source.progress import parse_reported


class GroupOffsetsListener(StreamingQueryListener):
    """Listens to all queries of a session. Publishes only when a query ends, because events arrive
    late and could move the group of a running query back."""

    def __init__(self) -> None:
        self._ended_at: dict[str, dict[PublishedGroup, Offsets]] = {}  # by run id

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        ends = {}
        for source in event.progress.sources:
            group = read_published_group(parse_reported(source.latestOffset))
            if group is not None and source.endOffset:
                ends[group] = read_offset(parse_reported(source.endOffset)).offsets
        if ends:
            self._ended_at[str(event.progress.runId)] = ends

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for published, offsets in self._ended_at.pop(str(event.runId), {}).items():
            client = shared_client(settings_of(published.bootstrap))
            GroupOffsetPublisher(client, published.group).publish(offsets)
