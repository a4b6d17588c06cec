"""Elections by race and by queue: one leader, failover, fencing, stale znodes, lost responses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from tests.profile import scaled
from tests.unit.metadata_store.recipes import (
    EPOCH,
    LEADER,
    QUEUE,
    Recipe,
    both,
    can_write,
    cancel,
    queue,
    race,
)

from penstock.metadata_store.election import Candidate, ElectionResult, RaceElection
from penstock.metadata_store.embedded.session import EmbeddedSession
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import (
    ANY_VERSION,
    Created,
    Operation,
    Result,
    Session,
    SessionState,
    Stat,
    Value,
    Watch,
    WatchEvent,
)
from penstock.testing.simulated_disk import SimulatedDisk

SEEDS = scaled(test=20, verify=400, release=4000)


@asynccontextmanager
async def opened() -> AsyncIterator[EmbeddedMetadataStore]:
    store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/coordination")
    async with asyncio.timeout(60):
        yield store
    await store.close()


def run_scenario(scenario: Callable[[EmbeddedMetadataStore], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened() as store:
            await scenario(store)

    asyncio.run(run())


async def run_other_tasks() -> None:
    """Let all other tasks run until they block; none waits for the clock."""
    for _ in range(200):
        await asyncio.sleep(0)


@both
def test_one_candidate_is_elected_and_the_others_wait(recipe: Recipe) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        sessions = [await store.open_session() for _ in range(5)]
        campaigns = [
            asyncio.create_task(recipe(session, f"b{index}").campaign())
            for index, session in enumerate(sessions)
        ]
        await run_other_tasks()
        elected = [campaign.result() for campaign in campaigns if campaign.done()]
        assert [leadership.epoch for leadership in elected] == [1]
        assert (await sessions[0].get(EPOCH)).data == b"1"
        await cancel(campaigns)

    run_scenario(scenario)


@both
def test_session_expiry_elects_the_next_with_the_next_epoch(recipe: Recipe) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        first, second = await store.open_session(), await store.open_session()
        leading = await recipe(first, "b1").campaign()
        campaign = asyncio.create_task(recipe(second, "b2").campaign())
        lost = asyncio.create_task(recipe(first, "b1").wait_lost(leading))
        await run_other_tasks()
        assert not campaign.done()
        assert not lost.done()
        await store.expire(first.id)
        following = await campaign
        await lost
        assert (leading.epoch, following.epoch) == (1, 2)
        with pytest.raises(SessionExpired):
            await recipe(first, "b1").campaign()

    run_scenario(scenario)


@both
def test_a_deposed_leader_s_fenced_write_fails(recipe: Recipe) -> None:
    """KAFKA-6082: the old leader writes through another session, and has not been notified yet."""

    async def scenario(store: EmbeddedMetadataStore) -> None:
        first, second = await store.open_session(), await store.open_session()
        zombie = await recipe(first, "b1").campaign()
        assert await can_write(second, zombie)
        await store.expire(first.id)
        leading = await recipe(second, "b2").campaign()
        assert not await can_write(second, zombie)
        assert await can_write(second, leading)

    run_scenario(scenario)


@both
def test_resigning_twice_is_harmless(recipe: Recipe) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        first, second = await store.open_session(), await store.open_session()
        election = recipe(first, "b1")
        leading = await election.campaign()
        campaign = asyncio.create_task(recipe(second, "b2").campaign())
        await run_other_tasks()
        await election.resign(leading)
        following = await campaign
        await election.wait_lost(leading)
        await election.resign(leading)
        await run_other_tasks()
        assert await can_write(second, following)
        assert await second.exists(following.node_path) is not None

    run_scenario(scenario)


@both
def test_a_candidate_replaces_its_znode_of_an_earlier_session(recipe: Recipe) -> None:
    """KAFKA-1387, KAFKA-7165: it restarts before its old session expires, a hundred times."""

    async def scenario(store: EmbeddedMetadataStore) -> None:
        session = await store.open_session()
        leading = await recipe(session, "b1").campaign()
        for turn in range(100):
            fresh = await store.open_session()
            following = await recipe(fresh, "b1").campaign()
            assert following.epoch == leading.epoch + 1
            assert not await can_write(fresh, leading)
            if turn % 2:
                await store.expire(session.id)  # late: it does not own the new znode
            stat = await fresh.exists(following.node_path)
            assert stat is not None
            assert (stat.ephemeral_owner, stat.czxid) == (fresh.id, following.node_czxid)
            session, leading = fresh, following

    run_scenario(scenario)


@both
def test_a_candidate_is_elected_again_after_each_of_a_hundred_expiries(recipe: Recipe) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        for turn in range(1, 101):
            session = await store.open_session()
            leading = await recipe(session, "b1").campaign()
            assert leading.epoch == turn
            lost = asyncio.create_task(recipe(session, "b1").wait_lost(leading))
            await run_other_tasks()
            await store.expire(session.id)
            await lost

    run_scenario(scenario)


@both
def test_deleting_the_leader_znode_ends_the_leadership(recipe: Recipe) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session, admin = await store.open_session(), await store.open_session()
        election = recipe(session, "b1")
        leading = await election.campaign()
        lost = asyncio.create_task(election.wait_lost(leading))
        await run_other_tasks()
        await admin.set(leading.node_path, b"b1")  # a changed znode does not end it
        await run_other_tasks()
        assert not lost.done()
        await admin.delete(leading.node_path)
        await lost
        assert (await election.campaign()).epoch == 2

    run_scenario(scenario)


@both
def test_expiry_while_waiting_raises(recipe: Recipe) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        first, second = await store.open_session(), await store.open_session()
        await recipe(first, "b1").campaign()
        campaign = asyncio.create_task(recipe(second, "b2").campaign())
        await run_other_tasks()
        await store.expire(second.id)
        with pytest.raises(SessionExpired):
            await campaign

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("recipe", "lost_answer"), [*((race, n) for n in range(2)), *((queue, n) for n in range(5))]
)
def test_a_lost_response_is_recognized_by_the_next_attempt(
    recipe: Recipe, lost_answer: int
) -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session = await store.open_session()
        election = recipe(FaultySession(session, lost_answer), "b1")
        with pytest.raises(ConnectionLoss):
            await election.campaign()
        leading = await election.campaign()
        assert await can_write(session, leading)
        stat = await session.exists(leading.node_path)
        assert stat is not None
        assert (stat.ephemeral_owner, stat.czxid) == (session.id, leading.node_czxid)
        if recipe is queue:
            assert len(await session.children(QUEUE)) == 1

    run_scenario(scenario)


def test_an_election_won_without_a_response_is_recognized() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session = await store.open_session()
        won = await race(session, "b1").campaign()
        assert await race(session, "b1").campaign() == won

    run_scenario(scenario)


def test_an_epoch_raised_without_an_election_causes_a_new_one() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session, admin = await store.open_session(), await store.open_session()
        won = await race(session, "b1").campaign()
        await admin.set(EPOCH, b"7")
        assert not await can_write(session, won)
        again = await race(session, "b1").campaign()
        assert again.epoch == 8
        assert await can_write(session, again)

    run_scenario(scenario)


def test_a_candidate_recognizes_its_znodes_by_its_id() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        old, new = await store.open_session(), await store.open_session()
        await race(old, "b1 at 10:00").campaign()
        candidate = Candidate(data=b"b1 at 10:05", owns=lambda data: data.startswith(b"b1 "))
        election = RaceElection(new, candidate, leader_path=LEADER, epoch_path=EPOCH)
        assert (await election.campaign()).epoch == 2

    run_scenario(scenario)


def test_a_stale_znode_is_not_deleted_if_another_was_elected_meanwhile() -> None:
    """Between the read and the transaction the old session expires and another candidate wins."""

    async def scenario(store: EmbeddedMetadataStore) -> None:
        old, new, other = [await store.open_session() for _ in range(3)]
        await race(old, "b1").campaign()
        following: list[ElectionResult] = []

        async def meanwhile() -> None:
            await store.expire(old.id)
            following.append(await race(other, "b2").campaign())

        slow = FaultySession(new, before_multi=meanwhile)
        campaign = asyncio.create_task(race(slow, "b1").campaign())
        await run_other_tasks()
        assert not campaign.done()
        assert await can_write(new, following[0])
        assert (await new.get(LEADER)).data == b"b2"
        await cancel([campaign])

    run_scenario(scenario)


def test_a_candidate_whose_queue_entry_is_deleted_is_not_elected() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session, admin = await store.open_session(), await store.open_session()

        async def meanwhile() -> None:
            for name in await admin.children(QUEUE):
                await admin.delete(f"{QUEUE}/{name}")

        leading = await queue(FaultySession(session, before_multi=meanwhile), "b1").campaign()
        assert leading.epoch == 1
        assert await session.exists(leading.node_path) is not None

    run_scenario(scenario)


# The queue is fair and wakes one candidate.


def test_the_queue_elects_in_the_order_of_arrival_and_wakes_only_the_next() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        sessions = [FaultySession(await store.open_session()) for _ in range(6)]
        campaigns: list[asyncio.Task[ElectionResult]] = []
        for index, session in enumerate(sessions):
            campaigns.append(asyncio.create_task(queue(session, f"b{index}").campaign()))
            await run_other_tasks()
        for index, session in enumerate(sessions):
            assert [c.done() for c in campaigns] == [p <= index for p in range(6)]
            assert campaigns[index].result().epoch == index + 1
            for other in sessions:
                other.woken = 0
            await store.expire(session.id)
            await run_other_tasks()
            assert [s.woken for s in sessions[index + 1 :]] == [1, 0, 0, 0, 0][: 5 - index]

    run_scenario(scenario)


def test_a_candidate_that_leaves_the_queue_causes_no_election() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        sessions = [await store.open_session() for _ in range(3)]
        campaigns: list[asyncio.Task[ElectionResult]] = []
        for index, session in enumerate(sessions):
            campaigns.append(asyncio.create_task(queue(session, f"b{index}").campaign()))
            await run_other_tasks()
        await store.expire(sessions[1].id)
        await run_other_tasks()
        assert [campaign.done() for campaign in campaigns] == [True, True, False]
        with pytest.raises(SessionExpired):
            await campaigns[1]
        await store.expire(sessions[0].id)
        assert (await campaigns[2]).epoch == 2

    run_scenario(scenario)


def test_the_first_of_the_queue_takes_the_leader_znode() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        first, second = await store.open_session(), await store.open_session()
        leading = await queue(first, "b1").campaign()
        campaign = asyncio.create_task(queue(second, "b2").campaign())
        lost = asyncio.create_task(queue(first, "b1").wait_lost(leading))
        await run_other_tasks()
        assert (await second.get(LEADER)).data == b"b1"
        entry = next(name for name in await first.children(QUEUE) if f"{first.id:016x}" in name)
        await second.delete(f"{QUEUE}/{entry}")
        following = await campaign
        await lost
        assert (await second.get(LEADER)).data == b"b2"
        assert not await can_write(first, leading)
        assert await can_write(second, following)

    run_scenario(scenario)


def test_resigning_deletes_the_queue_entry() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session = await store.open_session()
        election = queue(session, "b1")
        await election.resign(await election.campaign())
        assert await session.children(QUEUE) == ()
        assert await session.exists(LEADER) is None

    run_scenario(scenario)


def test_foreign_znodes_in_the_queue_are_ignored() -> None:
    async def scenario(store: EmbeddedMetadataStore) -> None:
        session = await store.open_session()
        for path in ("/election", QUEUE, f"{QUEUE}/notes"):
            await session.create(path)
        assert (await queue(session, "b1").campaign()).epoch == 1
        assert await session.exists(f"{QUEUE}/notes") is not None

    run_scenario(scenario)


def test_a_race_wakes_all_candidates() -> None:
    """Unlike the queue."""

    async def scenario(store: EmbeddedMetadataStore) -> None:
        sessions = [FaultySession(await store.open_session()) for _ in range(6)]
        await race(sessions[0], "b0").campaign()
        campaigns = [asyncio.create_task(race(s, f"b{s.id}").campaign()) for s in sessions[1:]]
        await run_other_tasks()
        await store.expire(sessions[0].id)
        await run_other_tasks()
        assert all(session.woken for session in sessions[1:])
        assert sum(campaign.done() for campaign in campaigns) == 1
        await cancel(campaigns)

    run_scenario(scenario)


# Random faults of several candidates.


@both
@pytest.mark.parametrize("seed", range(SEEDS))
def test_there_is_never_more_than_one_leader(recipe: Recipe, seed: int) -> None:
    epochs = run_with_faults(recipe, seed)
    assert epochs == sorted(set(epochs))


@both
def test_most_random_runs_change_their_leader(recipe: Recipe) -> None:
    changes = [len(run_with_faults(recipe, seed)) - 1 for seed in range(20)]
    assert sum(1 for count in changes if count) >= 16


def run_with_faults(recipe: Recipe, seed: int) -> list[int]:
    """Return the epochs that four candidates win during random faults."""
    leaderships: list[ElectionResult] = []

    async def scenario(store: EmbeddedMetadataStore) -> None:
        chance = random.Random(seed)
        brokers = [Broker(store, recipe, f"b{index}", leaderships) for index in range(4)]
        observer = await store.open_session()
        for _ in range(25):
            await chance.choice(brokers).inject_fault(chance)
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            await check_one_leader(observer, leaderships)
        await run_other_tasks()
        await run_other_tasks()
        assert sum(broker.leadership is not None for broker in brokers) == 1  # always one leader
        await cancel([broker.task for broker in brokers])

    run_scenario(scenario)
    return [leadership.epoch for leadership in leaderships]


async def check_one_leader(observer: Session, leaderships: Sequence[ElectionResult]) -> None:
    """Check that only the last winner can write, if any, and has the only leader znode."""
    won = list(leaderships)
    able = [leadership for leadership in won if await can_write(observer, leadership)]
    assert able in ([], won[-1:])


class Broker:
    """Campaigns repeatedly, with a new session whenever the old one has expired."""

    def __init__(
        self, store: EmbeddedMetadataStore, recipe: Recipe, name: str, won: list[ElectionResult]
    ) -> None:
        self.leadership: ElectionResult | None = None
        self._store = store
        self._recipe = recipe
        self._name = name
        self._won = won
        self._session: EmbeddedSession | None = None
        self.task = asyncio.create_task(self._live())

    async def inject_fault(self, chance: random.Random) -> None:
        session, leadership = self._session, self.leadership
        fate = chance.choice([self._expire, self._resign, self._restart])
        if session is not None:
            with suppress(SessionExpired):
                await fate(session, leadership)

    async def _expire(self, session: EmbeddedSession, leadership: ElectionResult | None) -> None:
        await self._store.expire(session.id)

    async def _resign(self, session: EmbeddedSession, leadership: ElectionResult | None) -> None:
        if leadership is not None:
            await self._recipe(session, self._name).resign(leadership)

    async def _restart(self, session: EmbeddedSession, leadership: ElectionResult | None) -> None:
        """Restart the process before its old session has expired."""
        await cancel([self.task])
        self.leadership = None
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        while True:
            self._session = await self._store.open_session()
            election = self._recipe(self._session, self._name)
            with suppress(SessionExpired):
                while True:
                    self.leadership = await election.campaign()
                    self._won.append(self.leadership)
                    await election.wait_lost(self.leadership)
                    self.leadership = None
            self.leadership = None


class FaultySession:
    """A session that counts its watches' calls, and loses one of its responses."""

    def __init__(
        self,
        session: Session,
        lost_answer: int | None = None,
        before_multi: Callable[[], Awaitable[None]] | None = None,  # called once
    ) -> None:
        self.id = session.id
        self.woken = 0
        self.listen = session.listen
        self.sync = session.sync
        self.close = session.close
        self._session = session
        self._lost_answer = lost_answer
        self._before_multi = before_multi
        self._writes = 0

    @property
    def state(self) -> SessionState:
        return self._session.state

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        created = await self._session.create(path, data, ephemeral=ephemeral, sequential=sequential)
        self._lose()
        return created

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._session.exists(path, self._counting(watch))

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        return await self._session.children(path, self._counting(watch))

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        return await self._session.get(path, self._counting(watch))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await self._session.set(path, data, version)
        self._lose()
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._session.delete(path, version)
        self._lose()

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if self._before_multi is not None:
            meanwhile, self._before_multi = self._before_multi, None
            await meanwhile()
        results = await self._session.multi(operations)
        self._lose()
        return results

    def _counting(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None

        def counting(event: WatchEvent) -> None:
            self.woken += 1
            watch(event)

        return counting

    def _lose(self) -> None:
        """Apply the write, and lose its response."""
        self._writes += 1
        if self._writes - 1 == self._lost_answer:
            raise ConnectionLoss("the answer was lost on its way")
