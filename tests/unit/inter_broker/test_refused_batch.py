"""RefusedBatch: a follower notifies its leader, which another in-sync replica replaces.

Controllers, servers and replicas are real, in one process.
"""

import pytest
from tests.unit.inter_broker.cluster_harness import ClusterHarness, run_scenario, until
from tests.unit.inter_broker.test_inter_broker import T0, make, seen
from tests.unit.replication.harness import some_batch

from penstock.inter_broker.messages.failed_replicas import (
    FailedReplicasRequest,
    decode_failed_replicas,
    encode_failed_replicas,
)
from penstock.inter_broker.messages.refused_batch import (
    RefusedBatchRequest,
    decode_refused_batch,
    encode_refused_batch,
)
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.ids import LeaderEpoch, Offset
from penstock.replication.refused_batches import RefusedBatch

pytestmark = pytest.mark.xdist_group("cluster-harness")

SEGMENT = "/data/t-0/00000000000000000000.log"


def test_requests_and_responses_survive_a_round_trip() -> None:
    refused = RefusedBatchRequest(BrokerId(3), T0, LeaderEpoch(5), Offset(2**40))
    assert decode_refused_batch(encode_refused_batch(refused)) == refused
    for is_damaged in (False, True):
        failed = FailedReplicasRequest(BrokerId(3), BrokerEpoch(9), 1000, (T0,), is_damaged)
        assert decode_failed_replicas(encode_failed_replicas(failed)) == failed


@pytest.mark.parametrize("leader", [1, 2], ids=["the controller", "another broker"])
def test_a_damaged_leader_is_replaced_by_a_member_of_the_isr(leader: int) -> None:
    async def scenario(cluster: ClusterHarness) -> None:
        second, third = (broker for broker in (1, 2, 3) if broker != leader)
        await make(cluster.brokers[1], "t", (leader, second, third))
        damaged, follower = cluster.brokers[leader], cluster.brokers[third]
        damaged.replicas.append(
            [(T0, memoryview(some_batch()))], acks=1, timeout_ms=0, done=lambda _: None
        )
        refused = RefusedBatch(T0, BrokerId(leader), seen(follower).leader_epoch, Offset(0))
        damaged.disk.flip_bit(SEGMENT, 8 * 64)
        follower.refused_batches.add(refused)
        await until(lambda: seen(follower).leader == second)
        assert set(seen(follower).in_sync) == {second, third}
        assert any("IS DAMAGED" in line for line in damaged.reports)
        await until(lambda: damaged.replicas.get(T0).log_end_offset == 0)

    run_scenario(scenario, 1, 2, 3)
