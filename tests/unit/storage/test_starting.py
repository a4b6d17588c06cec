"""The cost of a start with many logs."""

from tests.unit.storage.several_logs import CONFIG, NOW_MS, Shelf

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import TopicPartition
from penstock.storage.segmented_engine import SegmentedEngine


def test_recovery_resolves_the_config_of_a_topic_once() -> None:
    """For any number of partitions, because resolving a config takes as long as opening a log."""
    shelf = Shelf()
    for number in range(5):
        shelf.create(TopicPartition("t", number))
    topics: list[str] = []

    def config_of(topic: str) -> LogConfig:
        topics.append(topic)
        return CONFIG

    engine = SegmentedEngine(
        StorageConfig(log_dirs=("/d",)), config_of=config_of, disk=shelf.disk.survivor_of_kill()
    )
    assert len(engine.recover(lambda *, done, total: None, NOW_MS)) == 5
    assert topics == ["t"]
