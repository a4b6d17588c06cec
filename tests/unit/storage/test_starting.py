"""A start: its cost with many logs, and logs that have lost their end."""

from tests.unit.storage.several_logs import CONFIG, FIRST, NOW_MS, SECOND, Shelf

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import Offset, TopicPartition
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


def test_a_log_below_its_checkpointed_high_watermark_is_short() -> None:
    shelf = Shelf()
    log = shelf.create(FIRST)
    shelf.append(log, 30)
    shelf.append(shelf.create(SECOND), 30)
    shelf.run_jobs("checkpoint")
    expected = log.high_watermark
    segments = [path for path in shelf.disk.files() if path.startswith(log.directory)]
    bases = sorted({path.rpartition("/")[2].split(".")[0] for path in segments if ".log" in path})
    assert len(bases) > 2
    disk = shelf.disk.survivor_of_kill()
    for path in segments:
        if path.rpartition("/")[2].startswith(tuple(bases[1:])):
            disk.remove(path)
    again = shelf.after(disk)
    assert again.engine.short() == {FIRST: expected}
    assert again.logs[FIRST].log_end_offset == int(bases[1])
    assert again.engine.missing() == set()


def test_a_log_that_was_truncated_on_purpose_is_not_short() -> None:
    shelf = Shelf()
    log = shelf.create(FIRST)
    shelf.append(log, 30)
    shelf.run_jobs("checkpoint")
    log.truncate_to(Offset(10), NOW_MS)
    assert shelf.after(shelf.disk.survivor_of_kill()).engine.short() == {}
