"""What is shown of replicas: their own view, and their leader's where they do not answer."""

from penstock.client.metadata import PartitionMetadata
from penstock.client.replica_descriptions import ReplicaDescription, describe_replicas
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicPartition
from penstock.protocol.describe_replicas import (
    UNKNOWN,
    DescribedFollower,
    DescribedReplica,
    ReplicaRole,
)

TP = TopicPartition("orders", 0)
BROKERS = (BrokerId(1), BrokerId(2), BrokerId(3))
METADATA = PartitionMetadata(
    partition=0,
    error=ErrorCode.NONE,
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(4),
    replicas=BROKERS,
    in_sync=(BrokerId(1), BrokerId(2)),
    offline=(),
)
FOLLOWERS = (
    DescribedFollower(2, 100, 0, 3),
    DescribedFollower(3, 40, 9_000, 9_500),
)
LEADER = DescribedReplica(TP, ReplicaRole.LEADER, 4, 5, 90, 95, 100, 7_000, None, FOLLOWERS)
FOLLOWER = LEADER._replace(role=ReplicaRole.FOLLOWER, high_watermark=94, followers=())


def described(**answers: DescribedReplica) -> list[ReplicaDescription]:
    by_broker = {BrokerId(int(name[1:])): {TP: replica} for name, replica in answers.items()}
    return describe_replicas(TP, METADATA, by_broker)


def test_each_replica_describes_itself_and_the_leader_says_how_far_it_is_behind() -> None:
    lagging = FOLLOWER._replace(log_end_offset=60)
    leader, second, third = described(b1=LEADER, b2=FOLLOWER, b3=lagging)
    assert [replica.state for replica in (leader, second, third)] == [
        "leader",
        "in sync",
        "out of sync",
    ]
    assert (leader.behind, leader.behind_ms, leader.high_watermark) == (0, 0, 95)
    assert (second.behind, second.behind_ms, second.high_watermark) == (0, 0, 94)
    assert (third.log_end_offset, third.behind, third.behind_ms) == (60, 60, 9_000)


def test_a_replica_without_an_answer_is_described_by_its_leader() -> None:
    third = described(b1=LEADER)[2]
    assert third.state == "out of sync, no answer"
    assert (third.log_end_offset, third.behind, third.behind_ms) == (40, 60, 9_000)
    assert (third.log_start_offset, third.high_watermark, third.size_bytes) == (None, None, None)


def test_what_nobody_knows_is_not_shown_as_a_number() -> None:
    never = LEADER._replace(followers=(DescribedFollower(3, UNKNOWN, UNKNOWN, 10),))
    third = described(b1=never)[2]
    assert (third.log_end_offset, third.behind, third.behind_ms) == (None, None, None)
    for replica in described():
        assert not replica.has_answered
        assert (replica.log_end_offset, replica.behind, replica.behind_ms) == (None, None, None)


def test_a_failed_log_is_offline() -> None:
    failed = FOLLOWER._replace(role=ReplicaRole.NONE, failure="disk error")
    assert described(b1=LEADER, b2=failed)[1].state == "offline"
