"""Broker registration and candidacy, cluster id, generated broker ids, producer ids."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.unit.controller.cluster import NOW_MS, Cluster, node, opened, run_scenario

from penstock.controller.broker_registration import (
    BrokerIdTaken,
    controller_election,
    get_or_create_cluster_id,
    next_generated_broker_id,
    random_topic_id,
    register_broker,
)
from penstock.controller.producer_ids import BLOCK_SIZE, BlockProducerIds, ProducerIdsExhausted
from penstock.controller.state_loader import read_brokers
from penstock.controller.znodes import PRODUCER_IDS, encode_producer_block, format_uuid
from penstock.model.cluster import BrokerId
from penstock.testing.simulated_disk import SimulatedDisk


def test_the_broker_epoch_increases_with_every_registration() -> None:
    async def scenario(cluster: Cluster) -> None:
        epochs = []
        for _ in range(3):
            epochs.append(await cluster.join(5))
            await cluster.leave(5)
        assert epochs == sorted(set(epochs))

    run_scenario(scenario)


def test_a_registration_has_the_broker_epoch_and_ends_with_its_session() -> None:
    async def scenario(cluster: Cluster) -> None:
        epoch = await cluster.join(5, rack="r")
        brokers = await read_brokers(cluster.sessions[0], None)
        assert brokers[BrokerId(5)] == node(5, rack="r", epoch=epoch)
        await cluster.leave(5)
        assert set(await read_brokers(cluster.sessions[0], None)) == {0}

    run_scenario(scenario)


def test_a_registration_left_over_from_an_earlier_session_is_replaced() -> None:
    """KAFKA-1387, KAFKA-7165: a broker restarts before its old session expires, a hundred times."""

    async def scenario(cluster: Cluster) -> None:
        before = cluster.sessions[0]
        epoch = -1
        for turn in range(100):
            session = await cluster.store.open_session()
            again = await register_broker(session, node(0), now_ms=NOW_MS + turn)
            assert again > epoch
            if turn % 2:
                await cluster.store.expire(before.id)  # late: it owns no znode any more
            stat = await session.exists("/brokers/ids/0")
            assert stat is not None
            assert (stat.ephemeral_owner, stat.czxid) == (session.id, again)
            before, epoch = session, again

    run_scenario(scenario)


def test_registering_is_idempotent_within_a_session() -> None:
    async def scenario(cluster: Cluster) -> None:
        before = await cluster.sessions[0].exists("/brokers/ids/0")
        again = await register_broker(cluster.sessions[0], node(0), now_ms=NOW_MS)
        assert before is not None
        assert again == before.czxid

    run_scenario(scenario)


def test_a_broker_id_of_another_process_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        with pytest.raises(BrokerIdTaken, match=r"broker id 0 .*another broker\.id"):
            await register_broker(session, node(0, port=1), now_ms=NOW_MS)
        stat = await session.exists("/brokers/ids/0")
        assert stat is not None
        assert stat.ephemeral_owner == cluster.sessions[0].id

    run_scenario(scenario)


def test_endpoints_may_change_if_the_earlier_session_is_known() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = await cluster.store.open_session()
        earlier = [cluster.sessions[0].id]
        await register_broker(session, node(0, port=1), now_ms=NOW_MS, own_sessions=earlier)
        brokers = await read_brokers(session, None)
        assert brokers[BrokerId(0)].endpoints == node(0, port=1).endpoints

    run_scenario(scenario)


def test_a_controller_znode_left_over_from_itself_is_no_obstacle() -> None:
    async def scenario(cluster: Cluster) -> None:
        await controller_election(cluster.sessions[0], BrokerId(0), now_ms=1).campaign()
        session = await cluster.store.open_session()
        again = await controller_election(session, BrokerId(0), now_ms=2).campaign()
        assert again.epoch == 2
        other = asyncio.create_task(
            controller_election(cluster.sessions[0], BrokerId(1), now_ms=3).campaign()
        )
        await asyncio.sleep(0)
        assert not other.done()
        other.cancel()

    run_scenario(scenario)


def test_the_cluster_id_never_changes() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        cluster_ids = set()
        for _ in range(3):
            async with opened(disk, 0, 1) as cluster:
                sessions = cluster.sessions.values()
                cluster_ids |= set(await asyncio.gather(*map(get_or_create_cluster_id, sessions)))
        [cluster_id] = cluster_ids
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", cluster_id)

    asyncio.run(scenario())


def test_generated_broker_ids_are_above_the_reserved_ones_and_unique() -> None:
    async def scenario(cluster: Cluster) -> None:
        allocated = [
            await next_generated_broker_id(cluster.sessions[0], reserved_max=1000) for _ in range(3)
        ]
        assert allocated == [1001, 1002, 1003]

    run_scenario(scenario)


def test_topic_ids_do_not_look_like_options() -> None:
    assert not any(format_uuid(random_topic_id()).startswith("-") for _ in range(500))


# Producer ids.


def test_producer_ids_of_two_brokers_are_unique_and_allocated_in_blocks() -> None:
    async def scenario(cluster: Cluster) -> None:
        makers = [BlockProducerIds(s, BrokerId(b)) for b, s in cluster.sessions.items()]
        allocated = await asyncio.gather(
            *(maker.next_producer_id() for _ in range(BLOCK_SIZE + 5) for maker in makers)
        )
        assert len(set(allocated)) == len(allocated)
        assert set(allocated[::2]) >= set(range(BLOCK_SIZE))
        blocks = {number // BLOCK_SIZE for number in allocated}
        assert blocks == {0, 1, 2, 3}

    run_scenario(scenario, 0, 1)


def test_a_restart_does_not_reuse_producer_ids() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        allocated = []
        for _ in range(3):
            async with opened(disk) as cluster:
                maker = BlockProducerIds(cluster.sessions[0], BrokerId(0))
                allocated += [await maker.next_producer_id() for _ in range(3)]
        assert allocated == [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002]

    asyncio.run(scenario())


def test_exhausted_producer_ids_raise() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = cluster.sessions[0]
        last = 2**63 - 1 - BLOCK_SIZE
        block = encode_producer_block(BrokerId(0), first=0, last=last)
        await session.create(PRODUCER_IDS, block)
        maker = BlockProducerIds(session, BrokerId(0))
        allocated = [await maker.next_producer_id() for _ in range(BLOCK_SIZE)]
        assert allocated[-1] == 2**63 - 1
        with pytest.raises(ProducerIdsExhausted):
            await maker.next_producer_id()

    run_scenario(scenario)
