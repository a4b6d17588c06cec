"""What people ask of the controller by making nodes: topics, deletions, moves, elections.

Called by the controller's task, one at a time. A request's node goes when it is done, so that
whoever made it can wait for that; what cannot be done is reported and its node removed as well.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.controller import topic_deletion as deletion
from penstock.controller.interface import ApiError, ElectionType, Reassignment
from penstock.controller.leader_changes import elect_leaders
from penstock.controller.reassignment import alter_reassignments, find_reassignments
from penstock.controller.state_loader import (
    StoredTopic,
    UnreadableTopic,
    read_topic_values,
    read_topics,
)
from penstock.controller.znode_topics import add_edited_partitions, adopt_topics
from penstock.controller.znodes import (
    DELETIONS,
    ELECTIONS,
    REASSIGNMENTS,
    TOPICS,
    DamagedZnode,
    decode_elections,
    decode_reassignments,
    decode_topic,
    deletion_path,
    topic_config_path,
    topic_path,
)
from penstock.metadata_store.errors import BadVersion, MultiFailed, NoNode
from penstock.metadata_store.interface import ANY_VERSION, Delete, Value, Watch
from penstock.model.errors import Refusal
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.controller.active_controller import ActiveController


class RequestedReassignments(NamedTuple):
    """The node of moves, until the last of them is done."""

    version: int
    partitions: frozenset[TopicPartition]


class ZnodeRequests:
    """Owned by its term."""

    def __init__(self, term: "ActiveController") -> None:
        self._term = term
        self._moves: RequestedReassignments | None = None
        self._watched: set[str] = set()  # topics whose node has a watch

    async def begin(self) -> None:
        """What was asked for while nobody looked; topics and deletions are read with the tree."""
        await self.topics_edited(list(self._term.state.topics))
        await self.reassignments_changed()
        await self.elections_changed()

    async def topics_changed(self) -> None:
        term = self._term
        state = term.state
        names = await term.session.children(TOPICS, term.signals.topics_changed)
        new = [each for each in names if each not in state.topics and each not in state.unreadable]
        if new:
            found, unreadable = await self._read_new(new)
            for each in unreadable:
                term.setup.report(f"no topic is made of {each.name!r}: {each.why}")
            await term.carry_out(adopt_topics(state, found, unreadable, term.setup.new_topic_id))
        await self.topics_edited([each for each in names if each not in self._watched])

    async def topics_edited(self, names: Sequence[str]) -> None:
        """Their nodes may have changed, by this controller's hand or another's."""
        term = self._term
        values = await read_topic_values(term.session, names, term.signals.topic_edited)
        self._watched.difference_update(names)
        self._watched.update(values)
        for name, value in values.items():
            topic = term.state.find_topic(name)
            if topic is None:
                continue
            try:
                await term.carry_out(
                    add_edited_partitions(term.state, topic, decode_topic(name, value.data))
                )
            except (DamagedZnode, Refusal) as problem:
                term.setup.report(f"topic {name!r} stays as it is: {problem}")

    async def _read_new(self, names: list[str]) -> tuple[list[StoredTopic], list[UnreadableTopic]]:
        """One that is damaged inside is none as well, and keeps no other back."""
        try:
            return await read_topics(self._term.session, names)
        except DamagedZnode as damaged:
            broken = next((each for each in names if _is_of(damaged.path, each)), None)
            if broken is None:
                raise
            rest = [each for each in names if each != broken]
            found, unreadable = await self._read_new(rest)
            return found, [*unreadable, UnreadableTopic(broken, str(damaged))]

    async def deletions_changed(self) -> None:
        term = self._term
        names = await term.session.children(DELETIONS, term.signals.deletions_changed)
        new = [name for name in names if name not in term.state.deleting]
        decision, answers = deletion.delete_topics(
            term.state, new, is_enabled=term.allows_deletion, is_marked=True
        )
        await term.carry_out(decision)
        for name, refused in zip(new, answers, strict=True):
            if refused is not None:
                term.setup.report(f"topic {name!r} is not deleted: {refused.message}")
                await self._drop(deletion_path(name), ANY_VERSION)

    async def reassignments_changed(self) -> None:
        asked = await self._read(REASSIGNMENTS, self._term.signals.reassignments_changed)
        self._moves = None
        if asked is not None:
            await self._try(REASSIGNMENTS, asked, self._move)

    async def elections_changed(self) -> None:
        asked = await self._read(ELECTIONS, self._term.signals.elections_changed)
        if asked is not None:
            await self._try(ELECTIONS, asked, self._elect)

    async def settle(self) -> None:
        """After any change: the node of moves goes with the last of them."""
        if self._moves is None:
            return
        if self._moves.partitions.isdisjoint(find_reassignments(self._term.state)):
            version, self._moves = self._moves.version, None
            await self._drop(REASSIGNMENTS, version)

    async def _move(self, asked: Value) -> None:
        moves = [
            Reassignment(name, replicas) for name, replicas in decode_reassignments(asked.data)
        ]
        decision, answers = alter_reassignments(self._term.state, moves)
        names = [each.tp for each in moves]
        self._report("is not moved", zip(names, answers, strict=True))
        self._moves = RequestedReassignments(asked.stat.version, frozenset(names))
        await self._term.carry_out(decision)

    async def _elect(self, asked: Value) -> None:
        names = decode_elections(asked.data)
        decision, answers = elect_leaders(self._term.state, ElectionType.PREFERRED, names)
        self._report("keeps its leader", answers.items())
        await self._term.carry_out(decision)
        await self._drop(ELECTIONS, asked.stat.version)

    def _report(self, what: str, answers: Iterable[tuple[TopicPartition, ApiError | None]]) -> None:
        for name, refused in answers:
            if refused is not None:
                self._term.setup.report(f"{name} {what}: {refused.message}")

    async def _try(self, path: str, asked: Value, work: Callable[[Value], Awaitable[None]]) -> None:
        try:
            await work(asked)
        except DamagedZnode as damaged:
            self._term.setup.report(f"{damaged}; it is removed")
            await self._drop(path, asked.stat.version)

    async def _read(self, path: str, watch: Watch) -> Value | None:
        """With a watch for its next change, or for its creation."""
        session = self._term.session
        while True:
            try:
                return await session.get(path, watch)
            except NoNode:
                if await session.exists(path, watch) is None:
                    return None

    async def _drop(self, path: str, version: int) -> None:
        """Unless somebody has changed it: then its watch has told, and it is read anew."""
        try:
            await self._term.write([Delete(path=path, version=version)])
        except MultiFailed as failed:
            if not isinstance(failed.error, BadVersion | NoNode):
                raise


def _is_of(path: str, topic: str) -> bool:
    own = topic_path(topic)
    return path in (own, topic_config_path(topic)) or path.startswith(f"{own}/")
