"""Interfaces that the group coordinator needs from other packages. No behaviour.

Its log is a `runtime.CoordinatorLog` of the topic `__consumer_offsets`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from penstock.model.ids import TopicId


class TopicView(NamedTuple):
    topic_id: TopicId
    partitions: int


class Topics(Protocol):
    """The topics in this broker's metadata."""

    def find(self, name: str) -> TopicView | None: ...

    def all(self) -> Mapping[str, TopicView]: ...

    def find_name(self, topic_id: TopicId) -> str | None: ...
