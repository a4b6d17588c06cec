"""Members that follow the protocol, at any pace, share the work and are never removed.

Members join, leave and crash concurrently, commits are slow, and the coordinator restarts; all by
seed.
"""

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.coordinators.group.classic_harness import Call, ClassicGroupHarness, Client, work_of

from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import JoinGroupReply, LeavingMember, SyncGroupReply
from penstock.model.errors import ErrorCode

SETTINGS = settings(max_examples=scaled(test=60, verify=1000, release=10_000), deadline=None)
SEEDS = st.integers(0, 2**64 - 1)

HEARTBEAT_MS = 3000
POLL_MS = 5000  # a member needs at most this long to notice a rebalance and join
TROUBLE_MS = 60_000  # members join and leave during this time
SETTLED_MS = 120_000  # the group settles in this time, without joins and leaves


class World:
    """A coordinator, its clients, and the delays between them."""

    def __init__(self, seed: int, *, initial_delay_ms: int) -> None:
        self.random = Random(seed)
        self.harness = ClassicGroupHarness(GroupConfig(initial_rebalance_delay_ms=initial_delay_ms))
        self.harness.commits_at_once = False
        self.start_ms = self.harness.now_ms
        self.live: list[Consumer] = []
        self.restarts = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._commit()

    def after(self, at_most_ms: int, event: Callable[[], None]) -> None:
        self.at(self.harness.now_ms + self.random.randint(0, at_most_ms), event)

    def at(self, time_ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_ms, next(self._numbers), event))

    def some_time(self) -> int:
        return self.start_ms + self.random.randint(0, TROUBLE_MS)

    def run(self) -> None:
        end_ms = self.start_ms + TROUBLE_MS + SETTLED_MS
        while self._events[0][0] <= end_ms:
            time_ms, _, event = heapq.heappop(self._events)
            self.harness.pass_time(max(time_ms - self.harness.now_ms, 0))
            event()

    def restart(self) -> None:
        self.restarts += 1
        self.harness.fail_writes(ErrorCode.NOT_COORDINATOR)

    def _commit(self) -> None:
        self.harness.commit()
        self.after(400, self._commit)


class Consumer:
    """Behaves as clients do: joins, syncs, sends heartbeats, joins every rebalance."""

    def __init__(self, world: World, name: str, instance: str | None = None) -> None:
        self.world = world
        self.client = Client(
            world.harness, name, instance=instance, supports_skipping=world.random.random() < 0.5
        )
        self.is_running = True
        self.work: bytes | None = None  # the assignment of its generation
        self._turn = 0  # identifies the run: events of an earlier one are ignored
        world.live.append(self)
        self.join()

    def stop(self, *, politely: bool) -> None:
        if self.is_running:
            self.is_running = False
            self.world.live.remove(self)
            if politely and self.client.id:
                self.world.harness.leave(LeavingMember(self.client.id, self.client.instance))

    def join(self) -> None:
        self.work = None
        self._ask(self.client.join, self._on_joined)

    def _on_joined(self, reply: JoinGroupReply | ErrorCode) -> None:
        error = reply if isinstance(reply, ErrorCode) else reply.error
        if error is ErrorCode.NONE:
            self._later(500, self._sync)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget_id()
        else:
            retries = (
                ErrorCode.MEMBER_ID_REQUIRED,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )
            assert error in retries
            self._later(200, self.join)

    def _sync(self) -> None:
        joined = self.client.joined
        assert joined is not None
        if joined.members and not joined.skip_assignment:
            self._ask(self.client.assign, self._on_synced)
        else:
            self._ask(self.client.sync, self._on_synced)

    def _on_synced(self, reply: SyncGroupReply | ErrorCode) -> None:
        error = reply if isinstance(reply, ErrorCode) else reply.error
        if isinstance(reply, SyncGroupReply) and error is ErrorCode.NONE:
            assert reply.assignment, "a member got nothing to do"
            self.work = reply.assignment
            self._later(HEARTBEAT_MS, self._heartbeat)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget_id()
        else:
            self._assert_may_be_sent_back(error)
            self._later(POLL_MS, self.join)

    def _heartbeat(self) -> None:
        self._ask(
            lambda: self.world.harness.heartbeat(self.client.heartbeat_request()), self._on_beat
        )

    def _on_beat(self, error: ErrorCode) -> None:
        if error in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
            self._later(HEARTBEAT_MS, self._heartbeat)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget_id()
        else:
            self._assert_may_be_sent_back(error)
            self._later(POLL_MS, self.join)

    def _assert_may_be_sent_back(self, error: ErrorCode) -> None:
        lost = (ErrorCode.NOT_COORDINATOR, ErrorCode.ILLEGAL_GENERATION)
        is_excused = self.world.restarts > 0 and error in lost
        assert error is ErrorCode.REBALANCE_IN_PROGRESS or is_excused, error

    def _forget_id(self) -> None:
        assert self.world.restarts > 0, f"{self.client.name} lives and was thrown out"
        self.client.id = ""
        self._later(200, self.join)

    def _ask(self, send: Callable[[], Call], on_answer: Callable[[Any], None]) -> None:
        """Polls for the response, which may wait for a commit."""
        call = send()

        def look() -> None:
            if call.waits:
                self._later(50, look)
            else:
                on_answer(call.reply)

        self._later(50, look)

    def _later(self, at_most_ms: int, act: Callable[[], None]) -> None:
        def act_if_running() -> None:
            if self.is_running:
                act()

        self.world.after(at_most_ms, act_if_running)


def let_members_come_and_go(world: World) -> None:
    random = world.random
    for number in range(random.randint(2, 7)):
        name = f"consumer-{number}"
        is_static = random.random() < 0.4
        instance = f"static-{number}" if is_static else None
        started = world.some_time() if number else world.start_ms
        world.at(started, partial(begin, world, name, instance))


def begin(world: World, name: str, instance: str | None) -> None:
    consumer = Consumer(world, name, instance)
    fate = world.random.random()
    ends_ms = world.harness.now_ms + world.random.randint(0, TROUBLE_MS)
    if fate < 0.2:
        world.at(ends_ms, lambda: consumer.stop(politely=True))
    elif fate < 0.4:
        world.at(ends_ms, lambda: consumer.stop(politely=False))
    elif fate < 0.7 and instance is not None:
        world.at(ends_ms, lambda: come_back(world, consumer, name, instance))


def come_back(world: World, consumer: Consumer, name: str, instance: str) -> None:
    """Restarts the consumer: its former incarnation is gone, and may have a request in flight."""
    consumer.stop(politely=False)
    Consumer(world, name, instance)


def assert_settled(world: World) -> None:
    group = world.harness.group
    assert set(group.members) == {consumer.client.id for consumer in world.live}
    assert group.state is (ClassicState.STABLE if world.live else ClassicState.EMPTY)
    assert {consumer.client.generation for consumer in world.live} <= {group.generation}
    assert world.harness.waiting == 0
    for consumer in world.live:
        assert consumer.work == group.members[consumer.client.id].assignment
        if consumer.client.instance is None:
            assert consumer.work == work_of(consumer.client.id, group.generation)


@SETTINGS
@given(SEEDS, st.sampled_from([0, 3000]))
def test_members_that_follow_the_protocol_share_the_work_and_are_never_removed(
    seed: int, initial_delay_ms: int
) -> None:
    world = World(seed, initial_delay_ms=initial_delay_ms)
    let_members_come_and_go(world)
    world.run()
    assert_settled(world)


@SETTINGS
@given(SEEDS, st.integers(1, 4))
def test_a_group_settles_after_its_coordinator_lost_uncommitted_writes(
    seed: int, restarts: int
) -> None:
    world = World(seed, initial_delay_ms=0)
    let_members_come_and_go(world)
    for _ in range(restarts):
        world.at(world.some_time(), world.restart)
    world.run()
    assert_settled(world)
