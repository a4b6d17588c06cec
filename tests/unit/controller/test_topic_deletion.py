"""Topic deletion, one decision at a time."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.controller.cluster import code_of
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.topic_deletion import (
    delete_topics,
    find_deletable,
    remove_topics,
    replicas_deleted,
)
from penstock.metadata_store.interface import Create, Delete
from penstock.model.cluster import BrokerId, StopReplicaRequest, UpdateMetadataRequest
from penstock.model.errors import ErrorCode

A, B = BrokerId(0), BrokerId(1)
STATE = cluster_state(
    alive(0, 1),
    topic("t", partition(0, (0,), (0,)), partition(1, (1,), (1, 0))),
    topic("u", partition(1, (1,), (1,))),
    topic("kept", partition(0, (0,), (0,))),
)


def test_a_deletion_starts_with_a_mark_and_stop_replica() -> None:
    decision, results = delete_topics(STATE, ["t", "u"], is_enabled=True)
    assert results == [None, None]
    assert [[create.path for create in step] for step in decision.writes] == [
        ["/admin/delete_topics/t"],
        ["/admin/delete_topics/u"],
    ]
    assert all(isinstance(create, Create) for step in decision.writes for create in step)
    requests = {addressed.broker: addressed.request for addressed in decision.requests}
    assert len(requests) == len(decision.requests) == 2
    for broker, names in ((A, ["t-0", "t-1"]), (B, ["t-1", "u-0"])):
        addressed = requests[broker]
        assert isinstance(addressed, StopReplicaRequest)
        assert addressed.delete
        assert [str(tp) for tp in addressed.partitions] == names
    assert decision.state.deleting == {"t": {0, 1}, "u": {1}}
    assert decision.state.find_topic("t") is None


def test_a_topic_being_deleted_is_not_marked_again() -> None:
    first, _ = delete_topics(STATE, ["t"], is_enabled=True)
    second, results = delete_topics(first.state, ["t", "t"], is_enabled=True)
    assert results == [None, None]
    assert second.writes == ()
    assert second.requests == ()


def test_a_topic_is_removed_once_the_last_broker_confirmed() -> None:
    state = delete_topics(STATE, ["t", "u"], is_enabled=True)[0].state
    state = replicas_deleted(state, B, ["t", "u"]).state
    assert find_deletable(state) == ["u"]
    state = replicas_deleted(state, A, ["t"]).state
    assert find_deletable(state) == ["t", "u"]


def test_confirmations_of_other_topics_are_ignored() -> None:
    assert replicas_deleted(STATE, A, ["t"]).state == STATE


def test_znodes_are_deleted_children_first_and_the_mark_last() -> None:
    state = replace(STATE, deleting={"u": frozenset()})
    paths = [
        "/brokers/topics/u",
        "/brokers/topics/u/partitions",
        "/brokers/topics/u/partitions/0",
        "/brokers/topics/u/partitions/0/state",
        "/config/topics/u",
        "/admin/delete_topics/u",
    ]
    decision = remove_topics(state, {"u": paths})
    assert all(isinstance(create, Delete) for step in decision.writes for create in step)
    steps = [[create.path for create in step] for step in decision.writes]
    assert steps[:-1] == [[path] for path in (paths[3], paths[2], paths[1])]
    assert steps[-1] == [paths[0], "/admin/delete_topics/u", "/config/topics/u"]
    assert set(decision.state.topics) == {"t", "kept"}
    assert decision.state.deleting == {}
    updates = [addressed.request for addressed in decision.requests]
    assert [addressed.broker for addressed in decision.requests] == [0, 1]
    for update in updates:
        assert isinstance(update, UpdateMetadataRequest)
        assert update.deleted_topics == ("u",)


def test_a_left_over_mark_is_deleted() -> None:
    state = replace(STATE, deleting={"u": frozenset()})
    decision = remove_topics(state, {"u": ["/admin/delete_topics/u"]})
    assert [[create.path for create in step] for step in decision.writes] == [
        ["/admin/delete_topics/u"]
    ]


def test_a_topic_with_only_offline_replicas_leaves_the_metadata_at_once() -> None:
    state = replace(STATE, brokers=alive(0))
    decision, _ = delete_topics(state, ["u"], is_enabled=True)
    [(broker, update)] = decision.requests
    assert broker == A
    assert isinstance(update, UpdateMetadataRequest)
    assert update.deleted_topics == ("u",)


def test_nothing_is_deleted_if_deletion_is_disabled() -> None:
    decision, results = delete_topics(STATE, ["t", "none"], is_enabled=False)
    assert [code_of(answer) for answer in results] == [ErrorCode.TOPIC_DELETION_DISABLED] * 2
    assert decision.state == STATE
    assert decision.writes == ()
