"""The controller of a broker: stands for election, and while it leads, does one thing at a time.

Not the decisions, which are pure, nor their writing, which a Term does. One task owns all of it;
whoever asks puts a request in its bounded queue. Whatever it did not foresee ends `run`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random, SystemRandom
from typing import Any, NamedTuple, TypeVar

from penstock.config.given import NOTHING_GIVEN, Given
from penstock.controller.delivery import Delivery, Outboxes, Wiring
from penstock.controller.interface import (
    BrokerChannel,
    ConfigChange,
    MorePartitions,
    NewTopic,
    Refused,
)
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST
from penstock.controller.orders import everything
from penstock.controller.registration import random_topic_id
from penstock.controller.standing_nodes import ensure_nodes
from penstock.controller.state import ClusterState
from penstock.controller.term import Fenced, Outcome, Setup, Signals, Term
from penstock.controller.writes import TRANSACTION_BYTES
from penstock.controller.znodes import PERSISTENT
from penstock.coordination.election import Election, Leadership
from penstock.coordination.interface import Session, WatchEvent
from penstock.model.cluster import NO_BROKER, BrokerId, ControllerEpoch, TopicState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.model.values import dataclass

MAX_QUEUED_REQUESTS = 500
ALTER_TIMEOUT_MS = 30_000  # AlterConfigs brings none of its own

Answer = TypeVar("Answer")
Work = Callable[[Term], Awaitable[Outcome[Answer]]]


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


class _Request(NamedTuple):
    work: Work[Any]
    outcome: asyncio.Future[Outcome[Any]]


_NOT_CONTROLLER = Refused(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)
_GIVEN_UP = Refused(
    ErrorCode.NOT_CONTROLLER,
    "this broker stopped being the controller before all was done; the next one goes on with it",
)


class NotLeading(Exception):
    """Another broker is the controller, or none is at the moment."""


class Controller:
    """Implements Administration. `run` is its task; everything else may be called beside it."""

    def __init__(
        self,
        *,
        session: Session,
        election: Election,
        channel: BrokerChannel,
        broker_id: BrokerId,
        static: Given = NOTHING_GIVEN,
        random: Random | None = None,
        new_topic_id: Callable[[], TopicId] = random_topic_id,
        wait_ms: Callable[[int], Awaitable[None]] = _sleep_ms,
        report: Callable[[str], None] = lambda message: None,
        max_partitions_per_request: int = MAX_PARTITIONS_PER_REQUEST,
        transaction_bytes: int = TRANSACTION_BYTES,
    ) -> None:
        self._session = session
        self._election = election
        self._channel = channel
        self._wait_ms = wait_ms
        self._setup = Setup(
            broker_id=broker_id,
            static=static,
            random=random or SystemRandom(),
            new_topic_id=new_topic_id,
            report=report,
            max_partitions=max_partitions_per_request,
            transaction_bytes=transaction_bytes,
        )
        self._term: Term | None = None
        self._is_closing = False
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._is_idle = asyncio.Event()  # `run` is not under way
        self._is_idle.set()
        self._requests: deque[_Request] = deque()
        self._room = asyncio.Semaphore(MAX_QUEUED_REQUESTS)
        # What has happened; each is noted once, however often it is told.
        self._is_lost = False
        self._have_brokers_changed = False
        self._removed: dict[tuple[BrokerId, tuple[str, ...]], None] = {}

    # The owner task.

    async def run(self) -> None:
        """Until `close`; raises what ends it, SessionExpired and ConnectionLost among it.

        After ConnectionLost it may be run again, once the session is back.
        """
        self._is_idle.clear()
        try:
            if not self._is_closing:
                await ensure_nodes(self._session, PERSISTENT)
            while not self._is_closing:
                leadership = await self._campaign()
                if leadership is not None:
                    await self._lead(leadership)
        finally:
            self._is_idle.set()

    async def close(self) -> None:
        """Have `run` give up the leadership, and wait until it has; requests are refused."""
        self._is_closing = True
        self._wake.set()
        await self._is_idle.wait()

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
        self, topics: Sequence[NewTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | Refused]:
        async def work(term: Term) -> Outcome[TopicState]:
            return await term.create_topics(topics, validate_only=validate_only)

        return await self._ask(work, len(topics), timeout_ms)

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> list[Refused | None]:
        async def work(term: Term) -> Outcome[None]:
            return await term.delete_topics(names)

        return await self._ask(work, len(names), timeout_ms)

    async def create_partitions(
        self, additions: Sequence[MorePartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[Refused | None]:
        async def work(term: Term) -> Outcome[None]:
            return await term.create_partitions(additions, validate_only=validate_only)

        return await self._ask(work, len(additions), timeout_ms)

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> list[Refused | None]:
        async def work(term: Term) -> Outcome[None]:
            return await term.alter_configs(changes, validate_only=validate_only)

        return await self._ask(work, len(changes), ALTER_TIMEOUT_MS)

    async def _ask(self, work: Work[Answer], count: int, timeout_ms: int) -> list[Answer | Refused]:
        deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await self._enqueue(work)
        except TimeoutError:
            return [_late(timeout_ms)] * count
        except NotLeading:
            return [_NOT_CONTROLLER] * count
        await _wait_all(outcome.waits.values(), deadline)
        return [
            _find_problem(outcome.waits.get(place, ()), timeout_ms) or answer
            for place, answer in enumerate(outcome.answers)
        ]

    async def _enqueue(self, work: Work[Answer]) -> Outcome[Answer]:
        async with self._room:
            if self._term is None or self._is_closing:
                raise NotLeading
            request = _Request(work, asyncio.get_running_loop().create_future())
            self._requests.append(request)
            self._wake.set()
            return await request.outcome

    # Of the owner task.

    async def _campaign(self) -> Leadership | None:
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

    async def _lead(self, leadership: Leadership) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                lost = tasks.create_task(self._wait_lost(leadership), name="controller-lost")
                term = self._new_term(leadership, tasks)
                try:
                    await self._serve(term)
                finally:
                    self._end(term)
                    lost.cancel()
        except BaseExceptionGroup as group:
            _raise_but_fenced(group)  # somebody else leads: the next campaign waits for its end
        await self._election.resign(leadership)  # harmless where it is over already

    def _new_term(self, leadership: Leadership, tasks: asyncio.TaskGroup) -> Term:
        self._is_lost = self._have_brokers_changed = False
        self._removed.clear()
        wiring = Wiring(
            channel=self._channel,
            everything=lambda broker: everything(term.state, broker),
            on_stale=self._note_lost,
            wait_ms=self._wait_ms,
            report=self._setup.report,
        )
        term = Term(
            session=self._session,
            leadership=leadership,
            setup=self._setup,
            signals=Signals(brokers_changed=self._note_brokers, data_removed=self._note_removed),
            outboxes=Outboxes(tasks, wiring),
        )
        return term

    async def _serve(self, term: Term) -> None:
        own = await term.begin()
        self._term = term
        _when_all_done(own, self._ready.set)
        while not self._is_lost and not self._is_closing:
            if not await self._do_next(term):
                await self._wake.wait()
                self._wake.clear()

    async def _do_next(self, term: Term) -> bool:
        """One thing, what happened before what is asked for; False when there is nothing."""
        if self._have_brokers_changed:
            self._have_brokers_changed = False
            await term.brokers_changed()
        elif self._removed:
            broker, topics = next(iter(self._removed))
            del self._removed[broker, topics]
            await term.data_removed(broker, topics)
        elif self._requests:
            await self._answer(term, self._requests.popleft())
        else:
            return False
        return True

    async def _answer(self, term: Term, request: _Request) -> None:
        if request.outcome.done():  # whoever asked has given up
            return
        try:
            outcome = await request.work(term)
        except BaseException:
            _refuse(request)
            raise
        if not request.outcome.done():
            request.outcome.set_result(outcome)

    def _end(self, term: Term) -> None:
        self._ready.clear()
        self._term = None
        term.end()
        while self._requests:
            _refuse(self._requests.popleft())

    # Told by watches, outboxes and the election.

    async def _wait_lost(self, leadership: Leadership) -> None:
        await self._election.wait_lost(leadership)
        self._note_lost()

    def _note_lost(self) -> None:
        self._is_lost = True
        self._wake.set()

    def _note_brokers(self, event: WatchEvent) -> None:
        self._have_brokers_changed = True
        self._wake.set()

    def _note_removed(self, broker: BrokerId, topics: tuple[str, ...]) -> None:
        self._removed[broker, topics] = None
        self._wake.set()


async def _wait_all(waits: Iterable[Sequence[Delivery]], deadline: float) -> None:
    deliveries = {delivery for each in waits for delivery in each}
    if deliveries:
        left = max(deadline - asyncio.get_running_loop().time(), 0)
        await asyncio.wait(deliveries, timeout=left)


def _find_problem(deliveries: Sequence[Delivery], timeout_ms: int) -> Refused | None:
    if any(not delivery.done() for delivery in deliveries):
        return _late(timeout_ms)
    return _GIVEN_UP if any(delivery.cancelled() for delivery in deliveries) else None


def _when_all_done(deliveries: Sequence[Delivery], call: Callable[[], None]) -> None:
    gathered = asyncio.gather(*deliveries)
    gathered.add_done_callback(lambda _: call())


def _raise_but_fenced(group: BaseExceptionGroup[BaseException]) -> None:
    _, rest = group.split(Fenced)
    if rest is not None:
        raise (rest.exceptions[0] if len(rest.exceptions) == 1 else rest) from None


def _refuse(request: _Request) -> None:
    if not request.outcome.done():
        request.outcome.set_exception(NotLeading())


def _late(timeout_ms: int) -> Refused:
    return Refused(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not done on every broker within {timeout_ms} ms; what was begun goes on: look again",
    )
