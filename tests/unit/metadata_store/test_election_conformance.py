"""Both elections on every metadata store: one leader, failover, fencing, and the queue's order.

test_election has many more scenarios on the embedded store, where nothing takes time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.unit.metadata_store.backends import Backend, every_backend, run_scenario
from tests.unit.metadata_store.recipes import (
    EPOCH,
    LEADER,
    QUEUE,
    Recipe,
    both,
    can_write,
    cancel,
    queue,
)

from penstock.metadata_store.election import Election, ElectionResult
from penstock.metadata_store.errors import ConnectionLoss, SessionExpired
from penstock.metadata_store.interface import Session


def with_both_recipes(
    scenario: Callable[[Backend, Recipe], Awaitable[None]],
) -> Callable[..., None]:
    @both
    @every_backend
    def test(backend: str, recipe: Recipe, request: pytest.FixtureRequest) -> None:
        run_scenario(scenario, backend, request, recipe)

    test.__name__ = getattr(scenario, "__name__", "story")
    test.__doc__ = scenario.__doc__
    return test


async def round_trips(session: Session) -> None:
    """Wait long enough for every candidate to act: it takes few steps between its waits."""
    for _ in range(20):
        await session.sync()
        for _ in range(20):
            await asyncio.sleep(0)


def campaign_of(recipe: Recipe, session: Session, name: str) -> "asyncio.Task[ElectionResult]":
    return asyncio.create_task(recipe(session, name).campaign())


async def wait_lost(election: Election, elected: ElectionResult) -> None:
    """ZooKeeper tells a session that its leader's znode is gone before it ends that very session:
    the look that follows may lose its connection, and then it is taken again."""
    while True:
        with suppress(ConnectionLoss):
            await election.wait_lost(elected)
            return


@with_both_recipes
async def test_one_candidate_is_elected_then_the_next(backend: Backend, recipe: Recipe) -> None:
    sessions = [await backend.open_session() for _ in range(4)]
    campaigns = [campaign_of(recipe, session, f"b{at}") for at, session in enumerate(sessions)]
    for epoch in range(1, 5):
        done, _ = await asyncio.wait(campaigns, return_when=asyncio.FIRST_COMPLETED)
        (winner,) = done
        at = campaigns.index(winner)
        assert winner.result().epoch == epoch
        await round_trips(sessions[at])
        assert [campaign.done() for campaign in campaigns].count(True) == 1
        value = await sessions[at].get(LEADER)
        assert value.stat.ephemeral_owner == sessions[at].id
        assert value.stat.czxid == winner.result().node_czxid
        await backend.expire(sessions.pop(at))
        campaigns.pop(at)


@with_both_recipes
async def test_a_deposed_leader_is_fenced_and_notified(backend: Backend, recipe: Recipe) -> None:
    first, second = await backend.open_session(), await backend.open_session()
    zombie = await recipe(first, "b1").campaign()
    lost = asyncio.create_task(wait_lost(recipe(first, "b1"), zombie))
    assert await can_write(second, zombie)
    campaign = campaign_of(recipe, second, "b2")
    await round_trips(first)
    await backend.expire(first)
    leading = await campaign
    await lost
    assert not await can_write(second, zombie)
    assert await can_write(second, leading)
    with pytest.raises(SessionExpired):
        await recipe(first, "b1").campaign()


@with_both_recipes
async def test_a_candidate_does_not_wait_for_its_earlier_session(
    backend: Backend, recipe: Recipe
) -> None:
    """KAFKA-1387, KAFKA-7165: a candidate restarts before its old session expires."""
    session = await backend.open_session()
    leading = await recipe(session, "b1").campaign()
    for turn in range(6):
        fresh = await backend.open_session()
        following = await recipe(fresh, "b1").campaign()
        assert following.epoch == leading.epoch + 1
        assert not await can_write(fresh, leading)
        if turn % 2:
            await backend.expire(session)  # late: it does not own the znode any more
        await fresh.sync()
        stat = await fresh.exists(following.node_path)
        assert stat is not None
        assert (stat.ephemeral_owner, stat.czxid) == (fresh.id, following.node_czxid)
        session, leading = fresh, following


@with_both_recipes
async def test_a_leader_that_resigns_may_campaign_again(backend: Backend, recipe: Recipe) -> None:
    first, second = await backend.open_session(), await backend.open_session()
    election = recipe(first, "b1")
    leading = await election.campaign()
    campaign = campaign_of(recipe, second, "b2")
    await election.resign(leading)
    following = await campaign
    await election.wait_lost(leading)
    await election.resign(leading)  # late, and harmless
    assert await can_write(second, following)
    again = campaign_of(recipe, first, "b1")
    await recipe(second, "b2").resign(following)
    assert (await again).epoch == following.epoch + 1


@with_both_recipes
async def test_deleting_the_leader_znode_forces_an_election(
    backend: Backend, recipe: Recipe
) -> None:
    session, admin = await backend.open_session(), await backend.open_session()
    election = recipe(session, "b1")
    leading = await election.campaign()
    lost = asyncio.create_task(election.wait_lost(leading))
    await round_trips(session)
    await admin.sync()
    await admin.delete(LEADER)
    await lost
    following = await election.campaign()
    await admin.sync()
    assert (await admin.get(EPOCH)).data == b"%d" % following.epoch == b"2"


async def queue_length(session: Session) -> int:
    stat = await session.exists(QUEUE)
    return 0 if stat is None else stat.num_children


@every_backend
def test_the_queue_elects_in_the_order_of_arrival(
    backend: str, request: pytest.FixtureRequest
) -> None:
    async def scenario(backend: Backend) -> None:
        sessions = [await backend.open_session() for _ in range(4)]
        campaigns = []
        for index, session in enumerate(sessions):
            campaigns.append(campaign_of(queue, session, f"b{index}"))
            while await queue_length(session) <= index:
                await round_trips(session)
        for index, session in enumerate(sessions):
            assert (await campaigns[index]).epoch == index + 1
            await round_trips(session)
            assert [campaign.done() for campaign in campaigns] == [p <= index for p in range(4)]
            await backend.expire(session)
        await cancel(campaigns)

    run_scenario(scenario, backend, request)
