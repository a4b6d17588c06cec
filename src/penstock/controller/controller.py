"""The controller of a broker: stands for election, and while it leads, does one thing at a time.

Not the decisions, which are pure, nor their writing, which a Term does. One task owns all of it;
whoever asks puts a request in its bounded queue. Whatever it did not foresee ends `run`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import count
from random import Random, SystemRandom

from penstock.config.raw_config import EMPTY_RAW_CONFIG, RawConfig
from penstock.controller.active_controller import (
    ActiveController,
    ControllerFenced,
    ControllerSetup,
    ControllerSignals,
    DecisionResult,
    StateOutdated,
)
from penstock.controller.broker_registration import random_topic_id
from penstock.controller.channel_manager import (
    ChannelDependencies,
    ControllerChannelManager,
    Delivery,
)
from penstock.controller.controller_requests import full_state_requests
from penstock.controller.event_queue import MAX_QUEUED_REQUESTS, ControllerEventQueue
from penstock.controller.interface import (
    ApiError,
    ConfigResourceChange,
    ControllerChannel,
    CreatableTopic,
    ElectionType,
    NewPartitions,
    Reassignment,
)
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.state import ClusterState
from penstock.controller.write_batches import TRANSACTION_BYTES
from penstock.controller.znodes import PERSISTENT_ZNODES, TOPICS
from penstock.metadata_store.election import Election, ElectionResult
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import Session, WatchEvent
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    TopicState,
)
from penstock.model.ids import TopicId, TopicPartition

__all__ = ["MAX_QUEUED_REQUESTS", "Controller", "ControllerStatistics"]

ALTER_TIMEOUT_MS = 30_000  # AlterConfigs brings none of its own


async def _sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatistics:
    is_leading: bool
    epoch: int  # 0: never led
    brokers: int
    topics: int
    partitions: int
    leaderless_partitions: int
    deleting_topics: int
    queued_requests: int


class ControllerEvent(IntEnum):
    """What the tree or the clock may tell, in the order in which it is looked after."""

    BROKERS = 0
    TOPICS = 1
    DELETIONS = 2
    REASSIGNMENTS = 3
    ELECTIONS = 4
    REBALANCE = 5


class Controller:
    """Implements Administration and Membership. `run` is its task; all else is called beside it."""

    def __init__(
        self,
        *,
        session: Session,
        election: Election,
        channel: ControllerChannel,
        broker_id: BrokerId,
        static: RawConfig = EMPTY_RAW_CONFIG,
        random: Random | None = None,
        new_topic_id: Callable[[], TopicId] = random_topic_id,
        wait_ms: Callable[[int], Awaitable[None]] = _sleep_ms,
        wait_rebalance_ms: Callable[[int], Awaitable[None]] = _sleep_ms,
        report: Callable[[str], None] = lambda message: None,
        max_partitions_per_request: int = MAX_PARTITIONS_PER_REQUEST,
        transaction_bytes: int = TRANSACTION_BYTES,
    ) -> None:
        self._session = session
        self._election = election
        self._channel = channel
        self._wait_ms = wait_ms
        self._wait_rebalance_ms = wait_rebalance_ms
        self._setup = ControllerSetup(
            broker_id=broker_id,
            static=static,
            random=random or SystemRandom(),
            new_topic_id=new_topic_id,
            report=report,
            max_partitions=max_partitions_per_request,
            transaction_bytes=transaction_bytes,
        )
        self._term: ActiveController | None = None
        self._is_closing = False
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._is_idle = asyncio.Event()  # `run` is not under way
        self._is_idle.set()
        self._requests = ControllerEventQueue(self._wake.set)
        # What has happened; each is noted once, however often it is told.
        self._is_lost = False
        self._order_numbers = count(1)
        self._happened: set[ControllerEvent] = set()
        self._removed: dict[tuple[BrokerId, tuple[str, ...]], None] = {}
        self._edited: dict[str, None] = {}  # topics
        # The same for all terms: what an earlier one watches still is watched once.
        self._signals = ControllerSignals(
            brokers_changed=partial(self._note, ControllerEvent.BROKERS),
            topics_changed=partial(self._note, ControllerEvent.TOPICS),
            topic_edited=self._note_edited,
            deletions_changed=partial(self._note, ControllerEvent.DELETIONS),
            reassignments_changed=partial(self._note, ControllerEvent.REASSIGNMENTS),
            elections_changed=partial(self._note, ControllerEvent.ELECTIONS),
            data_removed=self._note_removed,
        )

    # The owner task.

    async def run(self) -> None:
        """Until `close`; raises what ends it, SessionExpired and ConnectionLost among it.

        After ConnectionLost it may be run again, once the session is back.
        """
        self._is_idle.clear()
        try:
            if not self._is_closing:
                await ensure_znodes(self._session, PERSISTENT_ZNODES)
            while not self._is_closing:
                leadership = await self._campaign()
                if leadership is not None:
                    await self._lead(leadership)
        finally:
            self._is_idle.set()

    async def close(self) -> None:
        """Have `run` give up the leadership, and wait until it has; requests are refused."""
        self._is_closing = True
        self._requests.is_open = False
        self._wake.set()
        await self._is_idle.wait()

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def renew(self, session: Session, election: Election) -> None:
        """Go on with another session, where the last one has expired; `run` has ended by then."""
        assert self._is_idle.is_set(), "a controller that runs keeps its session"
        self._session = session
        self._election = election

    async def wait_ready(self) -> None:
        """Until it leads, and its own broker has applied all that it was told."""
        await self._ready.wait()

    def statistics(self) -> ControllerStatistics:
        state = self.find_state()
        partitions = [p for t in state.topics.values() for p in t.partitions] if state else []
        return ControllerStatistics(
            is_leading=state is not None,
            epoch=state.controller_epoch if state else ControllerEpoch(0),
            brokers=len(state.brokers) if state else 0,
            topics=len(state.topics) if state else 0,
            partitions=len(partitions),
            leaderless_partitions=sum(each.leader == NO_BROKER for each in partitions),
            deleting_topics=len(state.deleting) if state else 0,
            queued_requests=len(self._requests),
        )

    def find_state(self) -> ClusterState | None:
        """What the controller knows; None while it does not lead."""
        return None if self._term is None else self._term.state

    # Administration.

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]:
        async def work(term: ActiveController) -> DecisionResult[TopicState]:
            return await term.create_topics(topics, validate_only=validate_only)

        return await self._requests.ask(work, len(topics), timeout_ms)

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]:
        async def work(term: ActiveController) -> DecisionResult[None]:
            return await term.delete_topics(names)

        return await self._requests.ask(work, len(names), timeout_ms)

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]:
        async def work(term: ActiveController) -> DecisionResult[None]:
            return await term.create_partitions(additions, validate_only=validate_only)

        return await self._requests.ask(work, len(additions), timeout_ms)

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]:
        async def work(term: ActiveController) -> DecisionResult[None]:
            return await term.alter_configs(changes, validate_only=validate_only)

        return await self._requests.ask(work, len(changes), ALTER_TIMEOUT_MS)

    async def elect_leaders(
        self,
        election: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        async def work(
            term: ActiveController,
        ) -> DecisionResult[dict[TopicPartition, ApiError | None]]:
            return await term.elect_leaders(election, partitions)

        return await self._requests.ask_one(work, timeout_ms)

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]:
        async def work(term: ActiveController) -> DecisionResult[None]:
            return await term.alter_reassignments(
                reassignments, allow_replication_factor_change=allow_replication_factor_change
            )

        return await self._requests.ask(work, len(reassignments), timeout_ms)

    async def list_reassignments(
        self, *, timeout_ms: int
    ) -> Mapping[TopicPartition, PartitionState] | ApiError:
        return await self._requests.ask_one(ActiveController.list_reassignments, timeout_ms)

    # Membership.

    async def alter_partition(
        self,
        proposals: Sequence[AlterPartitionProposal],
        *,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        timeout_ms: int,
    ) -> list[AlterPartitionResult]:
        async def work(term: ActiveController) -> DecisionResult[list[AlterPartitionResult]]:
            return await term.alter_partition(proposals, broker, broker_epoch)

        return await self._requests.ask_or_raise(work, timeout_ms)

    async def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, *, timeout_ms: int
    ) -> tuple[TopicPartition, ...]:
        async def work(term: ActiveController) -> DecisionResult[tuple[TopicPartition, ...]]:
            return await term.controlled_shutdown(broker, broker_epoch)

        return await self._requests.ask_or_raise(work, timeout_ms)

    async def fail_replicas(
        self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        timeout_ms: int,
    ) -> None:
        async def work(term: ActiveController) -> DecisionResult[None]:
            return await term.fail_replicas(broker, broker_epoch, partitions)

        await self._requests.ask_or_raise(work, timeout_ms)

    # Of the owner task.

    async def _campaign(self) -> ElectionResult | None:
        """None when the controller is closed first."""
        campaign = asyncio.create_task(self._election.campaign(), name="controller-campaign")
        closing = asyncio.create_task(self._wait_closing(), name="controller-closing")
        try:
            await asyncio.wait((campaign, closing), return_when=asyncio.FIRST_COMPLETED)
            return await campaign if campaign.done() else None
        finally:
            campaign.cancel()
            closing.cancel()
            await asyncio.gather(campaign, closing, return_exceptions=True)

    async def _wait_closing(self) -> None:
        while not self._is_closing:
            await self._wake.wait()
            self._wake.clear()

    async def _lead(self, leadership: ElectionResult) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                lost = tasks.create_task(self._wait_lost(leadership), name="controller-lost")
                term = self._new_term(leadership, tasks)
                clock = tasks.create_task(self._watch_clock(term), name="controller-clock")
                try:
                    await self._serve(term)
                finally:
                    self._end(term)
                    lost.cancel()
                    clock.cancel()
        except BaseExceptionGroup as group:
            self._raise_but_over(group)
        await self._election.resign(leadership)  # harmless where it is over already

    def _new_term(self, leadership: ElectionResult, tasks: asyncio.TaskGroup) -> ActiveController:
        self._is_lost = False
        self._happened.clear()
        self._removed.clear()
        self._edited.clear()
        wiring = ChannelDependencies(
            channel=self._channel,
            everything=lambda broker: full_state_requests(term.state, broker),
            on_stale=self._note_lost,
            wait_ms=self._wait_ms,
            report=self._setup.report,
            numbers=self._order_numbers,
        )
        term = ActiveController(
            session=self._session,
            leadership=leadership,
            setup=self._setup,
            signals=self._signals,
            outboxes=ControllerChannelManager(tasks, wiring),
        )
        return term

    async def _serve(self, term: ActiveController) -> None:
        own = await term.begin()
        self._term = term
        self._requests.is_open = not self._is_closing
        _when_all_done(own, self._ready.set)
        while not self._is_lost and not self._is_closing:
            if not await self._do_next(term):
                await self._wake.wait()
                self._wake.clear()

    async def _do_next(self, term: ActiveController) -> bool:
        """One thing, what happened before what is asked for; False when there is nothing."""
        if self._happened:
            happening = min(self._happened)
            self._happened.discard(happening)
            await _LOOK_AFTER[happening](term)
        elif self._edited:
            names, self._edited = list(self._edited), {}
            await term.requests.topics_edited(names)
        elif self._removed:
            broker, topics = next(iter(self._removed))
            del self._removed[broker, topics]
            await term.data_removed(broker, topics)
        elif self._requests:
            await self._requests.answer_next(term)
        else:
            return False
        return True

    def _end(self, term: ActiveController) -> None:
        self._ready.clear()
        self._term = None
        term.end()
        self._requests.close()

    def _raise_but_over(self, group: BaseExceptionGroup[BaseException]) -> None:
        """What ended a term and no more: who leads next, here or elsewhere, reads all anew."""
        outdated, rest = group.split(StateOutdated)
        if outdated is not None:
            self._setup.report(
                f"the controller begins anew, since somebody else has changed what it was about "
                f"to change: {outdated.exceptions[0]}"
            )
        _, rest = rest.split(ControllerFenced) if rest is not None else (None, None)
        if rest is not None:
            raise _one_of(rest) from None

    async def _watch_clock(self, term: ActiveController) -> None:
        """As often as the settings say at the time; the first look waits for them to be known."""
        await self._ready.wait()
        while True:
            seconds = term.settings["leader.imbalance.check.interval.seconds"]
            assert isinstance(seconds, int)
            await self._wait_rebalance_ms(1000 * seconds)
            self._note(ControllerEvent.REBALANCE)

    # Told by watches, outboxes and the election.

    async def _wait_lost(self, leadership: ElectionResult) -> None:
        await self._election.wait_lost(leadership)
        self._note_lost()

    def _note_lost(self) -> None:
        self._is_lost = True
        self._wake.set()

    def _note(self, happening: ControllerEvent, event: WatchEvent | None = None) -> None:
        self._happened.add(happening)
        self._wake.set()

    def _note_edited(self, event: WatchEvent) -> None:
        self._edited[event.path.removeprefix(f"{TOPICS}/")] = None
        self._wake.set()

    def _note_removed(self, broker: BrokerId, topics: tuple[str, ...]) -> None:
        self._removed[broker, topics] = None
        self._wake.set()


_LOOK_AFTER: Mapping[ControllerEvent, Callable[[ActiveController], Awaitable[None]]] = {
    ControllerEvent.BROKERS: ActiveController.brokers_changed,
    ControllerEvent.TOPICS: lambda term: term.requests.topics_changed(),
    ControllerEvent.DELETIONS: lambda term: term.requests.deletions_changed(),
    ControllerEvent.REASSIGNMENTS: lambda term: term.requests.reassignments_changed(),
    ControllerEvent.ELECTIONS: lambda term: term.requests.elections_changed(),
    ControllerEvent.REBALANCE: ActiveController.rebalance,
}


def _when_all_done(deliveries: Sequence[Delivery], call: Callable[[], None]) -> None:
    gathered = asyncio.gather(*deliveries)
    gathered.add_done_callback(lambda _: call())


def _one_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Where several have met the end of the session, or of its connection, that is one error."""
    lost, rest = group.split((ConnectionLoss, SessionExpired))
    if rest is not None or lost is None:
        return group.exceptions[0] if len(group.exceptions) == 1 else group
    found: BaseException = lost.subgroup(SessionExpired) or lost
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
