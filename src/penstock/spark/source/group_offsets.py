"""Publishes a query's progress as a consumer group's committed offsets, so that tools for groups
show its lag.

Spark's checkpoint remains authoritative: a running query never reads these offsets back, and a
failed commit never stops it.
"""

import logging
from collections.abc import Collection
from typing import Any, NamedTuple

from penstock.client.errors import ClientError
from penstock.client.group_values import CommittedOffset
from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.source.offset_json import Offsets

_log = logging.getLogger(__name__)
_TIMEOUT_MS = 5_000  # a slow coordinator must not delay batches for longer
_METADATA = "penstock.spark"
_PUBLISH = "@publish"


class GroupOffsetPublisher:
    """Publishes for one group. Does not commit the same offsets again."""

    def __init__(self, client: BlockingClient, group: str) -> None:
        self._client = client
        self._group = group
        self._published: dict[TopicPartition, int] = {}
        self._warned: set[str] = set()

    def publish(self, offsets: Offsets) -> None:
        """Commit these offsets: everything before them has been processed."""
        changed = {
            tp: CommittedOffset(offset, metadata=_METADATA)
            for tp, offset in offsets.items()
            if self._published.get(tp) != offset
        }
        if not changed:
            return
        try:
            self._client.run(
                lambda client: client.groups.commit_offsets(
                    self._group, changed, timeout_ms=_TIMEOUT_MS
                )
            )
        except ClientError as error:
            self._warn_once(error)
        else:
            self._published.update(offsets)

    def forget(self, topics: Collection[str]) -> None:
        """Commit anew for these topics: a group's offsets are deleted with a topic."""
        self._published = {
            tp: offset for tp, offset in self._published.items() if tp.topic not in topics
        }

    def _warn_once(self, error: ClientError) -> None:
        text = f"cannot publish the offsets of group {self._group!r}: {error}"
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s; the query continues, with its offsets in Spark's checkpoint", text)


# A source tells `progress_listener` where to publish through the progress it reports, because that
# is the only data of a query that reaches the driver and no checkpoint.


class PublishedGroup(NamedTuple):
    bootstrap: str
    group: str


def add_published_group(reported: dict[str, Any], group: PublishedGroup) -> dict[str, Any]:
    return {**reported, _PUBLISH: group._asdict()}


def read_published_group(reported: Any) -> PublishedGroup | None:
    """None unless the progress is of this source and publishes offsets."""
    fields = reported.get(_PUBLISH) if isinstance(reported, dict) else None
    return None if fields is None else PublishedGroup(**fields)
