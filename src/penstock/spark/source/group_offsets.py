"""A query's progress as a consumer group's committed offsets, so that lag shows wherever groups do.

Spark's checkpoint stays the truth: nothing here is read back by a running query, and a group that
cannot be written to never stops one.
"""

import logging
from typing import Any, NamedTuple

from penstock.client.errors import ClientError
from penstock.client.group_values import CommittedOffset
from penstock.model.ids import TopicPartition
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.source.offset_json import Offsets

_log = logging.getLogger(__name__)
_TIMEOUT_MS = 5_000  # a coordinator that is slow must not hold up the batches for longer
_METADATA = "penstock.spark"
_PUBLISH = "@publish"


class GroupOffsetPublisher:
    """Of one group. Offsets that are committed already are not sent again."""

    def __init__(self, client: BlockingClient, group: str) -> None:
        self._client = client
        self._group = group
        self._published: dict[TopicPartition, int] = {}
        self._told: set[str] = set()

    def publish(self, offsets: Offsets) -> None:
        """Everything before them has been processed."""
        news = {
            each: CommittedOffset(offset, metadata=_METADATA)
            for each, offset in offsets.items()
            if self._published.get(each) != offset
        }
        if not news:
            return
        try:
            self._client.run(
                lambda client: client.groups.commit_offsets(
                    self._group, news, timeout_ms=_TIMEOUT_MS
                )
            )
        except ClientError as error:
            self._tell_once(error)
        else:
            self._published.update(offsets)

    def _tell_once(self, error: ClientError) -> None:
        text = f"the offsets of group {self._group!r} are not published: {error}"
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s; the query goes on, with its offsets in Spark's checkpoint", text)


# A source tells a listener in the progress it reports where its offsets are to be published: that
# is the one text of a query that reaches its driver and no checkpoint.


class PublishedGroup(NamedTuple):
    bootstrap: str
    group: str


def add_published_group(reported: dict[str, Any], where: PublishedGroup) -> dict[str, Any]:
    return {**reported, _PUBLISH: where._asdict()}


def read_published_group(reported: Any) -> PublishedGroup | None:
    """If this is a report of ours."""
    mark = reported.get(_PUBLISH) if isinstance(reported, dict) else None
    return None if mark is None else PublishedGroup(**mark)
