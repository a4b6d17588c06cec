"""CreateTopics and CreatePartitions: what is refused with which code, and what is created."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from tests.unit.controller.cluster import code_of
from tests.unit.controller.states import EPOCH, alive, cluster_state, partition, topic

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.controller.create_partitions import create_partitions
from penstock.controller.interface import ApiError, CreatableTopic, NewPartitions
from penstock.controller.new_partitions import CreationDependencies
from penstock.controller.refusals import find_duplicates
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.topic_creation import create_topics
from penstock.metadata_store.interface import Create, SetData
from penstock.model.cluster import BrokerId, LeaderAndIsrRequest, TopicState, UpdateMetadataRequest
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

IDS = [TopicId(UUID(int=number)) for number in range(100, 200)]


def dependencies(
    limit: int = 10_000, static: Mapping[str, str] | None = None
) -> CreationDependencies:
    ids = iter(IDS)
    return CreationDependencies(
        broker_config=resolve_broker(RawConfig.from_mapping(static or {}, where="test")),
        random=Random(1),
        new_topic_id=lambda: next(ids),
        max_partitions=limit,
        left_partitions=limit,
    )


THREE = cluster_state(
    alive(0, 1, 2),
    topic("requests", *[partition(0, (0, 1), (0, 1))] * 2),
    topic("a.b", partition(0, (0,), (0,))),
)


def create(
    *topics: CreatableTopic, state: ClusterState = THREE, static: Mapping[str, str] | None = None
) -> list[TopicState | ApiError]:
    duplicates = find_duplicates(topic.name for topic in topics)
    return create_topics(state, topics, dependencies(static=static), duplicates=duplicates)[1]


def assigned(*replicas: tuple[int, ...]) -> dict[int, tuple[BrokerId, ...]]:
    return {number: tuple(map(BrokerId, brokers)) for number, brokers in enumerate(replicas)}


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (CreatableTopic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "a-z A-Z"),
        (CreatableTopic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "reserved"),
        (CreatableTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "249"),
        (CreatableTopic(name="t\n"), ErrorCode.INVALID_TOPIC_EXCEPTION, "not valid"),
        (CreatableTopic(name="requests"), ErrorCode.TOPIC_ALREADY_EXISTS, "exists already"),
        (CreatableTopic(name="a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with a.b"),
        (CreatableTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS, "0 partitions"),
        (CreatableTopic(name="t", partitions=-2), ErrorCode.INVALID_PARTITIONS, "-2"),
        (CreatableTopic(name="t", partitions=10_001), ErrorCode.POLICY_VIOLATION, "10000"),
        (CreatableTopic(name="t", partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION, "10000"),
        (
            CreatableTopic(name="t", replication_factor=4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "3 broker",
        ),
        (CreatableTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "0"),
        (
            CreatableTopic(name="t", replication_factor=11),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "above 10",
        ),
        (
            CreatableTopic(name="t", replication_factor=-2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "-2",
        ),
        (
            CreatableTopic(name="t", partitions=1, assignment=assigned((0,))),
            ErrorCode.INVALID_REQUEST,
            "one or the other",
        ),
        (
            CreatableTopic(name="t", replication_factor=1, assignment=assigned((0,))),
            ErrorCode.INVALID_REQUEST,
            "one or the other",
        ),
        (
            CreatableTopic(name="t", assignment={0: (BrokerId(0),), 2: (BrokerId(0),)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "[0, 2]",
        ),
        (
            CreatableTopic(name="t", assignment={-1: (BrokerId(0),)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "[-1]",
        ),
        (
            CreatableTopic(name="t", assignment=assigned((0,), ())),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "no replica",
        ),
        (
            CreatableTopic(name="t", assignment=assigned((0, 0))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "twice",
        ),
        (
            CreatableTopic(name="t", assignment=assigned((0, 7))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "[7]",
        ),
        (
            CreatableTopic(name="t", assignment=assigned((0, 1), (0,))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "the others have 2",
        ),
        (
            CreatableTopic(name="t", configs={"retention.mss": "1"}),
            ErrorCode.INVALID_CONFIG,
            "did you mean retention.ms",
        ),
        (
            CreatableTopic(name="t", configs={"retention.ms": "soon"}),
            ErrorCode.INVALID_CONFIG,
            "'soon' is not valid",
        ),
        (
            CreatableTopic(name="t", configs={"retention.ms": None}),
            ErrorCode.INVALID_CONFIG,
            "no value",
        ),
        (
            CreatableTopic(
                name="t", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
            ),
            ErrorCode.INVALID_CONFIG,
            "compaction.lag",
        ),
        (
            CreatableTopic(name="__consumer_offsets", configs={"cleanup.policy": "delete"}),
            ErrorCode.INVALID_CONFIG,
            "must be compact",
        ),
        (
            CreatableTopic(
                name="t",
                configs={"leader.replication.throttled.replicas": "0:1" + ",0:1" * 300_000},
            ),
            ErrorCode.POLICY_VIOLATION,
            "bytes in the metadata store",
        ),
    ],
)
def test_invalid_topics_are_refused_with_kafka_s_error_code(
    topic: CreatableTopic, code: ErrorCode, words: str
) -> None:
    decision, [answer] = create_topics(THREE, [topic], dependencies())
    assert isinstance(answer, ApiError)
    assert answer.code is code
    assert words in answer.message
    assert decision == ControllerDecision(state=THREE)


def test_a_topic_gets_the_broker_s_defaults() -> None:
    static = {"num.partitions": "4", "default.replication.factor": "2"}
    [made] = create(CreatableTopic(name="t"), static=static)
    assert isinstance(made, TopicState)
    assert len(made.partitions) == 4
    assert {len(created.replicas) for created in made.partitions} == {2}


def test_the_first_replica_leads_a_new_partition_and_all_are_in_sync() -> None:
    [made] = create(CreatableTopic(name="t", assignment=assigned((2, 0), (1, 2))))
    assert isinstance(made, TopicState)
    assert [created.leader for created in made.partitions] == [2, 1]
    for created in made.partitions:
        assert created.in_sync == created.replicas
        assert (created.leader_epoch, created.partition_epoch, created.controller_epoch) == (
            0,
            0,
            EPOCH,
        )


def test_a_duplicate_name_is_refused_and_other_topics_are_created() -> None:
    results = create(CreatableTopic(name="t"), CreatableTopic(name="u"), CreatableTopic(name="t"))
    assert [code_of(answer) for answer in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_colliding_names_within_a_request_are_refused() -> None:
    results = create(CreatableTopic(name="x.y"), CreatableTopic(name="x_y"))
    assert [code_of(answer) for answer in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_the_partition_limit_counts_all_topics_of_a_request() -> None:
    topics = [CreatableTopic(name=f"t{number}", partitions=4) for number in range(3)]
    _, results = create_topics(THREE, topics, dependencies(limit=9))
    assert [code_of(answer) for answer in results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]


def test_a_topic_being_deleted_cannot_be_created() -> None:
    state = replace(THREE, deleting={"requests": frozenset((BrokerId(0),))})
    [answer] = create(CreatableTopic(name="requests"), state=state)
    assert isinstance(answer, ApiError)
    assert answer.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "being deleted" in answer.message


def test_the_first_step_writes_the_topic_znode_and_each_partition_is_one_step() -> None:
    topic = CreatableTopic(name="t", assignment=assigned((0,), (1,)), configs={"retention.ms": "5"})
    decision, _ = create_topics(THREE, [topic], dependencies())
    paths = [[operation.path for operation in step] for step in decision.writes]
    assert paths == [
        ["/config/topics/t", "/brokers/topics/t", "/brokers/topics/t/partitions"],
        ["/brokers/topics/t/partitions/0", "/brokers/topics/t/partitions/0/state"],
        ["/brokers/topics/t/partitions/1", "/brokers/topics/t/partitions/1/state"],
    ]
    configs, node, _ = decision.writes[0]
    assert isinstance(configs, Create)
    assert json.loads(configs.data) == {"version": 1, "config": {"retention.ms": "5"}}
    assert isinstance(node, Create)
    assert json.loads(node.data)["partitions"] == {"0": [0], "1": [1]}


def test_leader_and_isr_of_new_partitions_comes_before_update_metadata() -> None:
    topic = CreatableTopic(name="t", assignment=assigned((0, 1)))
    decision, _ = create_topics(THREE, [topic], dependencies())
    kinds = [(addressed.broker, type(addressed.request)) for addressed in decision.requests]
    assert kinds == [
        (0, LeaderAndIsrRequest),
        (1, LeaderAndIsrRequest),
        (0, UpdateMetadataRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
    ]
    first = decision.requests[0].request
    assert isinstance(first, LeaderAndIsrRequest)
    assert all(entry.is_new for entry in first.partitions)


@pytest.mark.parametrize(
    ("name", "prefix", "partitions"),
    [
        ("__consumer_offsets", "offsets.topic", 50),
        ("__transaction_state", "transaction.state.log", 50),
        ("__penstock_deferred", "penstock.delayed.topic", 50),
    ],
)
def test_internal_topics_get_the_coordinators_configs(
    name: str, prefix: str, partitions: int
) -> None:
    [made] = create(CreatableTopic(name=name))
    assert isinstance(made, TopicState)
    assert made.is_internal
    assert made.configs["cleanup.policy"] == "compact"
    assert len(made.partitions) == partitions
    assert len(made.partitions[0].replicas) == 3
    static = {f"{prefix}.num.partitions": "2", f"{prefix}.segment.bytes": "1048576"}
    [small] = create(CreatableTopic(name=name, replication_factor=1), static=static)
    assert isinstance(small, TopicState)
    assert (len(small.partitions), small.configs["segment.bytes"]) == (2, "1048576")


@pytest.mark.parametrize(
    ("factor", "static", "in_sync"),
    [(1, None, "1"), (2, None, "1"), (3, None, "2"), (1, "2", "2"), (3, "3", "3")],
)
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("__transaction_state", "transaction.state.log.min.isr"),
        ("__penstock_deferred", "penstock.delayed.topic.min.isr"),
    ],
)
def test_min_isr_of_coordinators_is_at_most_the_replication_factor(
    factor: int, static: str | None, in_sync: str, name: str, setting: str
) -> None:
    """Unless min ISR is configured."""
    settings = {} if static is None else {setting: static}
    topic = CreatableTopic(name=name, replication_factor=factor)
    [made] = create(topic, static=settings)
    assert isinstance(made, TopicState)
    assert made.configs["min.insync.replicas"] == in_sync


# CreatePartitions.


def grow(*requested: NewPartitions, state: ClusterState = THREE) -> list[ApiError | None]:
    duplicates = find_duplicates(request.name for request in requested)
    return create_partitions(state, requested, dependencies(limit=100), duplicates=duplicates)[1]


@pytest.mark.parametrize(
    ("additions", "code", "words"),
    [
        (NewPartitions(name="no", total=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not exist"),
        (NewPartitions(name="requests", total=2), ErrorCode.INVALID_PARTITIONS, "cannot shrink"),
        (NewPartitions(name="requests", total=1), ErrorCode.INVALID_PARTITIONS, "2 partitions"),
        (NewPartitions(name="requests", total=-1), ErrorCode.INVALID_PARTITIONS, "-1"),
        (NewPartitions(name="requests", total=103), ErrorCode.POLICY_VIOLATION, "100"),
        (NewPartitions(name="requests", total=2**31 - 1), ErrorCode.POLICY_VIOLATION, "100"),
        (
            NewPartitions(name="requests", total=4, assignment=((BrokerId(0), BrokerId(1)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "1 are assigned",
        ),
        (
            NewPartitions(name="requests", total=3, assignment=((BrokerId(0),),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partition 2 of requests",
        ),
        (
            NewPartitions(name="requests", total=3, assignment=((BrokerId(0), BrokerId(9)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "[9]",
        ),
    ],
)
def test_invalid_create_partitions_is_refused(
    additions: NewPartitions, code: ErrorCode, words: str
) -> None:
    [answer] = grow(additions)
    assert isinstance(answer, ApiError)
    assert answer.code is code
    assert words in answer.message


def test_create_partitions_adds_only_the_new_ones() -> None:
    decision, [answer] = create_partitions(
        THREE, [NewPartitions(name="requests", total=4)], dependencies()
    )
    assert answer is None
    before, after = THREE.topics["requests"], decision.state.topics["requests"]
    assert after.partitions[:2] == before.partitions
    assert len(after.partitions) == 4
    assert {len(partition.replicas) for partition in after.partitions} == {2}
    [[node], *added] = decision.writes
    assert isinstance(node, SetData)
    assert sorted(json.loads(node.data)["partitions"]) == ["0", "1", "2", "3"]
    assert [step[0].path[-1] for step in added] == ["2", "3"]


def test_added_partitions_continue_the_assignment() -> None:
    parts = [partition(broker, (broker,), (broker,)) for broker in (1, 2, 0, 1)]
    state = cluster_state(alive(0, 1, 2), topic("t", *parts))
    decision, _ = create_partitions(state, [NewPartitions(name="t", total=9)], dependencies())
    leaders = [partition.leader for partition in decision.state.topics["t"].partitions]
    assert leaders == [1, 2, 0] * 3


def test_create_partitions_needs_enough_live_brokers() -> None:
    state = replace(THREE, brokers=alive(0))
    [answer] = grow(NewPartitions(name="requests", total=3), state=state)
    assert code_of(answer) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_create_partitions_is_refused_during_a_reassignment() -> None:
    moving = partition(0, (0,), (0, 1))._replace(adding=(BrokerId(1),))
    state = cluster_state(alive(0, 1), topic("t", moving))
    [answer] = grow(NewPartitions(name="t", total=3), state=state)
    assert code_of(answer) is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_create_partitions_is_refused_during_a_deletion() -> None:
    state = replace(THREE, deleting={"requests": frozenset((BrokerId(0),))})
    [answer] = grow(NewPartitions(name="requests", total=3), state=state)
    assert isinstance(answer, ApiError)
    assert answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "being deleted" in answer.message
