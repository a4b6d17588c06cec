"""Requests that tools make by creating znodes: topics, deletions, reassignments, elections.

Called by the controller's task, one at a time. The znode of a request is deleted when it is done,
so that a tool can wait for that. A request that cannot be done is reported, and its znode is
deleted too.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.controller.interface import ApiError, Reassignment
from penstock.controller.leader_changes import elect_leaders
from penstock.controller.reassignment import alter_reassignments, find_reassignments
from penstock.controller.state_loader import (
    StoredTopic,
    UnreadableTopic,
    read_topic_values,
    read_topics,
)
from penstock.controller.stored_configs import describe_unreadable
from penstock.controller.topic_deletion import delete_topics
from penstock.controller.znode_topics import add_edited_partitions, adopt_topics
from penstock.controller.znodes import (
    DELETIONS,
    ELECTIONS,
    REASSIGNMENTS,
    TOPICS,
    decode_elections,
    decode_reassignments,
    decode_topic,
    deletion_path,
    topic_config_path,
    topic_path,
)
from penstock.metadata_store.errors import BadVersion, DamagedZnode, MultiFailed, NoNode
from penstock.metadata_store.interface import ANY_VERSION, Delete, Value, Watch
from penstock.model.admin import ElectionType
from penstock.model.errors import Refusal
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.controller.active_controller import ActiveController


class RequestedReassignments(NamedTuple):
    """The znode /admin/reassign_partitions, until its last reassignment is finished."""

    version: int
    partitions: frozenset[TopicPartition]


class ZnodeRequests:
    """Owned by its ActiveController."""

    def __init__(self, active: "ActiveController") -> None:
        self._active = active
        self._reassignments: RequestedReassignments | None = None
        self._watched: set[str] = set()  # topics whose znode has a watch

    async def fail_over(self) -> None:
        """Requests from before the election; topics and deletions are part of the loaded state."""
        await self.topics_edited(list(self._active.state.topics))
        await self.reassignments_changed()
        await self.elections_changed()

    async def topics_changed(self) -> None:
        active = self._active
        state = active.state
        names = await active.session.children(TOPICS, active.signals.topics_changed)
        new = [name for name in names if name not in state.topics and name not in state.unreadable]
        if new:
            stored, unreadable = await self._read_new(new)
            for ignored in unreadable:
                active.setup.logger.warning(
                    "topic_ignored", f"ignoring topic {ignored.name!r}: {ignored.why}"
                )
            for topic in stored:
                if topic.config_problem:
                    active.report_refused_configs(
                        topic_config_path(topic.name),
                        f"{topic.config_problem}; {describe_unreadable(topic.name)}",
                    )
            await active.apply(
                adopt_topics(state, stored, unreadable, active.setup.new_topic_id),
                "topic znodes created",
            )
        unwatched = [name for name in names if name not in self._watched]
        await self.topics_edited(unwatched)
        await active.config_watches.watch_topics(unwatched)

    async def topics_edited(self, names: Sequence[str]) -> None:
        """The topics' znodes may have changed, by this controller or by a tool."""
        active = self._active
        values = await read_topic_values(active.session, names, active.signals.topic_edited)
        self._watched.difference_update(names)
        self._watched.update(values)
        for name, value in values.items():
            topic = active.state.find_topic(name)
            if topic is None:
                continue
            try:
                await active.apply(
                    add_edited_partitions(active.state, topic, decode_topic(name, value.data)),
                    "topic znode edited",
                )
            except (DamagedZnode, Refusal) as problem:
                active.setup.logger.warning(
                    "topic_ignored", f"topic {name!r} stays as it is: {problem}"
                )

    async def _read_new(self, names: list[str]) -> tuple[list[StoredTopic], list[UnreadableTopic]]:
        """A topic with a damaged znode is unreadable too, and does not hold up the others."""
        try:
            return await read_topics(self._active.session, names)
        except DamagedZnode as damaged:
            broken = next((name for name in names if _belongs_to(damaged.path, name)), None)
            if broken is None:
                raise
            rest = [name for name in names if name != broken]
            stored, unreadable = await self._read_new(rest)
            return stored, [*unreadable, UnreadableTopic(broken, str(damaged))]

    async def deletions_changed(self) -> None:
        active = self._active
        names = await active.session.children(DELETIONS, active.signals.deletions_changed)
        new = [name for name in names if name not in active.state.deleting]
        decision, results = delete_topics(
            active.state, new, is_enabled=active.config.delete_topic_enable, is_marked=True
        )
        await active.apply(decision, "requested by a znode")
        for name, error in zip(new, results, strict=True):
            if error is not None:
                active.setup.logger.warning(
                    "topic_not_deleted", f"topic {name!r} is not deleted: {error.message}"
                )
                await self._delete(deletion_path(name), ANY_VERSION)

    async def reassignments_changed(self) -> None:
        value = await self._read(REASSIGNMENTS, self._active.signals.reassignments_changed)
        self._reassignments = None
        if value is not None:
            await self._try(REASSIGNMENTS, value, self._reassign)

    async def elections_changed(self) -> None:
        value = await self._read(ELECTIONS, self._active.signals.elections_changed)
        if value is not None:
            await self._try(ELECTIONS, value, self._elect)

    async def remove_finished_reassignments(self) -> None:
        """Delete the reassignments' znode once the last is finished; called after any change."""
        if self._reassignments is None:
            return
        if self._reassignments.partitions.isdisjoint(find_reassignments(self._active.state)):
            version, self._reassignments = self._reassignments.version, None
            await self._delete(REASSIGNMENTS, version)

    async def _reassign(self, value: Value) -> None:
        reassignments = [
            Reassignment(tp, replicas) for tp, replicas in decode_reassignments(value.data)
        ]
        decision, results = alter_reassignments(self._active.state, reassignments)
        partitions = [reassignment.tp for reassignment in reassignments]
        self._report("is not reassigned", zip(partitions, results, strict=True))
        self._reassignments = RequestedReassignments(value.stat.version, frozenset(partitions))
        await self._active.apply(decision, "requested by a znode")

    async def _elect(self, value: Value) -> None:
        partitions = decode_elections(value.data)
        decision, results = elect_leaders(self._active.state, ElectionType.PREFERRED, partitions)
        self._report("keeps its leader", results.items())
        await self._active.apply(decision, "requested by a znode")
        await self._delete(ELECTIONS, value.stat.version)

    def _report(self, what: str, results: Iterable[tuple[TopicPartition, ApiError | None]]) -> None:
        for tp, error in results:
            if error is not None:
                self._active.setup.logger.warning(
                    "znode_request_refused", f"{tp} {what}: {error.message}"
                )

    async def _try(self, path: str, value: Value, work: Callable[[Value], Awaitable[None]]) -> None:
        try:
            await work(value)
        except DamagedZnode as damaged:
            self._active.setup.logger.warning("znode_request_refused", f"{damaged}; it is deleted")
            await self._delete(path, value.stat.version)

    async def _read(self, path: str, watch: Watch) -> Value | None:
        """Read the znode, with a watch for its next change or for its creation."""
        session = self._active.session
        while True:
            try:
                return await session.get(path, watch)
            except NoNode:
                if await session.exists(path, watch) is None:
                    return None

    async def _delete(self, path: str, version: int) -> None:
        """Delete the znode unless it has changed: then its watch has it read again."""
        try:
            await self._active.write([Delete(path=path, version=version)])
        except MultiFailed as failed:
            if not isinstance(failed.error, BadVersion | NoNode):
                raise


def _belongs_to(path: str, topic: str) -> bool:
    own = topic_path(topic)
    return path in (own, topic_config_path(topic)) or path.startswith(f"{own}/")
