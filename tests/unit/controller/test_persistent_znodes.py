"""Persistent znodes are created together, by the first broker."""

import asyncio

import pytest
from tests.unit.controller.cluster import Cluster, run_scenario

from penstock.controller.persistent_znodes import ensure_znodes
from penstock.metadata_store.errors import NoNode

PATHS = ("/a", "/a/b", "/c", "/c/d")


def test_missing_znodes_are_created_in_one_round() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        await session.create("/a", b"kept")
        before = cluster.store.statistics().rounds
        await ensure_znodes(session, PATHS, b"last")
        assert cluster.store.statistics().rounds == before + 1
        data = [(await session.get(path)).data for path in PATHS]
        assert data == [b"kept", b"", b"", b"last"]

    run_scenario(scenario)


def test_nothing_is_written_if_all_znodes_exist() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        await ensure_znodes(session, PATHS, b"first")
        before = cluster.store.statistics().rounds
        await ensure_znodes(session, PATHS, b"second")
        assert cluster.store.statistics().rounds == before
        assert (await session.get("/c/d")).data == b"first"

    run_scenario(scenario)


def test_several_brokers_may_create_znodes_at_the_same_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        sessions = [await cluster.store.open_session() for _ in range(3)]
        await asyncio.gather(*(ensure_znodes(session, PATHS) for session in sessions))
        assert await sessions[0].children("/a") == ("b",)

    run_scenario(scenario)


def test_a_missing_parent_raises() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(NoNode, match="/x"):
            await ensure_znodes(await cluster.store.open_session(), ("/x/y",))

    run_scenario(scenario)
