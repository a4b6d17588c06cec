"""A log dir fails while its broker runs: the controller elects other leaders for its replicas."""

from __future__ import annotations

import errno

import pytest
from tests.unit.inter_broker.cluster_harness import (
    BrokerHarness,
    ClusterHarness,
    run_scenario,
    until,
)
from tests.unit.inter_broker.test_inter_broker import T0, make, seen

from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode
from penstock.protocol.records import Record, build_batch
from penstock.replication.delayed_produce import PartitionAppended

pytestmark = pytest.mark.xdist_group("cluster-harness")


def append(broker: BrokerHarness) -> ErrorCode:
    """Return the error code that a producer with acks=1 gets."""
    answers: list[list[PartitionAppended]] = []
    batch = memoryview(build_batch([Record(0, 0, b"k", b"v")]))
    broker.replicas.append([(T0, batch)], acks=1, timeout_ms=0, done=answers.append)
    return answers[0][0].code


def break_disk(broker: BrokerHarness) -> None:
    broker.disk.fail_path("/data", errno.EIO)
    assert append(broker) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("leader", [1, 2])
def test_another_replica_becomes_leader_wherever_the_controller_is(leader: int) -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        other = 3 - leader
        await make(cluster.controller, "t", (leader, other))
        broken = cluster.brokers[leader]
        assert append(broken) is ErrorCode.NONE
        break_disk(broken)
        everybody = cluster.brokers.values()
        await until(lambda: all(seen(broker).leader == other for broker in everybody))
        assert all(seen(broker).in_sync == (other,) for broker in everybody)
        await until(lambda: all(broker.metadata.failed == {T0: {leader}} for broker in everybody))
        assert append(cluster.brokers[other]) is ErrorCode.NONE
        assert append(broken) is ErrorCode.KAFKA_STORAGE_ERROR

    run_scenario(scenario, 1, 2)


def test_without_another_isr_member_there_is_no_leader_even_after_a_failover() -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        await make(cluster.controller, "t", (3,))
        broken, old = cluster.brokers[3], cluster.controller
        assert old is not broken
        break_disk(broken)
        await until(lambda: seen(old).leader == NO_BROKER)
        assert seen(old).in_sync == (3,)

        await old.stop()
        del cluster.brokers[old.id]
        await cluster.wait_joined()
        await until(lambda: _has_failure(cluster.controller))
        await cluster.add(4)
        await cluster.wait_joined()
        assert seen(cluster.controller).leader == NO_BROKER
        assert seen(cluster.brokers[4]).leader == NO_BROKER
        assert cluster.brokers[4].metadata.failed == {T0: {3}}

    def _has_failure(controller: BrokerHarness) -> bool:
        state = controller.controller.find_state()
        return state is not None and state.failed == {T0: frozenset((3,))}

    run_scenario(scenario, 1, 2, 3)
