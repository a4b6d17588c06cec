"""Topics in memory, as the metadata of a broker shows them to groups."""

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinators.group.dependencies import TopicView
from penstock.model.ids import TopicId


class FakeTopics:
    """Implements `Topics`."""

    def __init__(self, **partitions: int) -> None:
        self._views: dict[str, TopicView] = {}
        self._created = 0
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        self._created += 1
        self._views[name] = TopicView(TopicId(UUID(int=self._created)), partitions)

    def grow(self, name: str, partitions: int) -> None:
        self._views[name] = self._views[name]._replace(partitions=partitions)

    def delete(self, name: str) -> None:
        del self._views[name]

    def find(self, name: str) -> TopicView | None:
        return self._views.get(name)

    def all(self) -> Mapping[str, TopicView]:
        return self._views

    def find_name(self, topic_id: TopicId) -> str | None:
        named = (name for name, view in self._views.items() if view.topic_id == topic_id)
        return next(named, None)
