"""The metadata cache is the sum of UpdateMetadata requests."""

from uuid import UUID

from penstock.model.cluster import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    FailedReplicas,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.replication.metadata_cache import MetadataCache

FIRST = BrokerId(1)


def topic(name: str, number: int, *, partitions: int = 1) -> TopicState:
    state = PartitionState(FIRST, LeaderEpoch(0), (FIRST,), (FIRST,))
    return TopicState(
        name=name, topic_id=TopicId(UUID(int=number)), partitions=(state,) * partitions
    )


def node(number: int) -> BrokerNode:
    return BrokerNode(id=BrokerId(number), epoch=BrokerEpoch(0), endpoints=())


def update(
    *topics: TopicState,
    controller: int = 1,
    epoch: int = 1,
    is_full: bool = False,
    deleted: tuple[str, ...] = (),
    brokers: tuple[BrokerNode, ...] | None = None,
    broker_configs: dict[str, dict[str, str]] | None = None,
    failed: FailedReplicas | None = None,
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=BrokerId(controller),
        controller_epoch=ControllerEpoch(epoch),
        is_full=is_full,
        brokers=brokers,
        topics=topics,
        deleted_topics=deleted,
        broker_configs=broker_configs,
        failed=failed,
    )


def test_the_cache_is_empty_before_the_first_update() -> None:
    view = MetadataCache()
    assert (view.version, view.controller_id) == (0, NO_BROKER)
    assert (dict(view.brokers), dict(view.topics)) == ({}, {})
    assert view.find_topic("a") is None


def test_updates_are_merged() -> None:
    view = MetadataCache()
    view.apply(update(topic("a", 1), brokers=(node(1),), broker_configs={"": {"x": "1"}}))
    view.apply(update(topic("b", 2), controller=2, epoch=2))
    assert set(view.topics) == {"a", "b"}
    assert set(view.brokers) == {1}
    assert view.broker_configs == {"": {"x": "1"}}
    assert (view.controller_id, view.version) == (2, 2)
    view.apply(update(brokers=(node(2),), epoch=2))
    assert set(view.brokers) == {2}


def test_topics_are_found_by_name_and_by_id() -> None:
    view = MetadataCache()
    view.apply(update(topic("a", 1), topic("b", 2)))
    topic_a = view.find_topic("a")
    assert topic_a is not None
    assert view.find_name(topic_a.topic_id) == "a"
    assert view.find_name(TopicId(UUID(int=3))) is None


def test_a_recreated_topic_is_not_found_by_its_old_id() -> None:
    view = MetadataCache()
    view.apply(update(topic("a", 1)))
    view.apply(update(topic("a", 2)))
    assert view.find_name(TopicId(UUID(int=1))) is None
    assert view.find_name(TopicId(UUID(int=2))) == "a"


def test_a_topic_deleted_and_recreated_in_one_update_exists() -> None:
    view = MetadataCache()
    view.apply(update(topic("a", 1), topic("b", 3)))
    view.apply(update(topic("a", 2), deleted=("a", "b", "never there")))
    assert set(view.topics) == {"a"}
    assert view.find_name(TopicId(UUID(int=2))) == "a"
    assert view.find_name(TopicId(UUID(int=3))) is None


def test_a_full_update_replaces_everything() -> None:
    view = MetadataCache()
    view.apply(update(topic("a", 1), brokers=(node(1),), broker_configs={"1": {"x": "1"}}))
    view.apply(update(topic("b", 2), brokers=(node(2),), is_full=True, epoch=2))
    assert (set(view.topics), set(view.brokers)) == ({"b"}, {2})
    assert view.broker_configs == {}
    assert view.find_name(TopicId(UUID(int=1))) is None


def test_offline_replicas_are_those_of_the_last_update() -> None:
    view = MetadataCache()
    failed = {TopicPartition("a", 0): frozenset((FIRST,))}
    view.apply(update(topic("a", 1), failed=failed))
    view.apply(update(topic("b", 2)))
    assert view.failed == failed
    view.apply(update(failed={}))
    assert view.failed == {}
    view.apply(update(failed=failed))
    view.apply(update(topic("b", 2), is_full=True))
    assert view.failed == {}


def test_partition_numbers_outside_a_topic_are_unknown() -> None:
    view = MetadataCache()
    view.apply(update(topic("a", 1, partitions=2)))
    exists = [view.has_partition(TopicPartition("a", number)) for number in (-1, 0, 1, 2)]
    assert exists == [False, True, True, False]
    assert not view.has_partition(TopicPartition("b", 0))


def test_listeners_are_called_after_an_update_is_applied() -> None:
    view = MetadataCache()
    heard: list[tuple[int, bool]] = []
    view.listen(lambda update: heard.append((view.version, "a" in view.topics)))
    view.apply(update(topic("a", 1)))
    assert heard == [(1, True)]
