"""Starting an engine: its cost with many logs, and logs that have lost their end."""

from tests.unit.storage.several_logs import CONFIG, FIRST, NOW_MS, SECOND, EngineHarness

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.model.ids import Offset, TopicPartition
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk


def test_recovery_resolves_the_config_of_a_topic_once() -> None:
    """Resolving a config takes as long as opening a log, so it is done once for all partitions."""
    harness = EngineHarness()
    for number in range(5):
        harness.create(TopicPartition("t", number))
    topics: list[str] = []

    def config_of(topic: str) -> LogConfig:
        topics.append(topic)
        return CONFIG

    engine = SegmentedEngine(
        StorageConfig(log_dirs=("/d",)), config_of=config_of, disk=harness.disk.survivor_of_kill()
    )
    assert len(engine.recover(lambda *, done, total: None, NOW_MS)) == 5
    assert topics == ["t"]


def test_a_log_below_its_checkpointed_high_watermark_is_short() -> None:
    harness = EngineHarness()
    log = harness.create(FIRST)
    harness.append(log, 30)
    harness.append(harness.create(SECOND), 30)
    harness.run_jobs("checkpoint")
    expected = log.high_watermark
    segments = [path for path in harness.disk.files() if path.startswith(log.directory)]
    bases = sorted({path.rpartition("/")[2].split(".")[0] for path in segments if ".log" in path})
    assert len(bases) > 2
    disk = harness.disk.survivor_of_kill()
    for path in segments:
        if path.rpartition("/")[2].startswith(tuple(bases[1:])):
            disk.remove(path)
    again = harness.after(disk)
    assert again.engine.short() == {FIRST: expected}
    assert again.logs[FIRST].log_end_offset == int(bases[1])
    assert again.engine.missing() == set()


def test_a_log_that_was_truncated_on_purpose_is_not_short() -> None:
    harness = EngineHarness()
    log = harness.create(FIRST)
    harness.append(log, 30)
    harness.run_jobs("checkpoint")
    log.truncate_to(Offset(10), NOW_MS)
    assert harness.after(harness.disk.survivor_of_kill()).engine.short() == {}


def test_a_log_that_recovery_truncated_is_still_short_after_another_crash() -> None:
    """The broker may crash again before it has reported the loss."""
    harness = EngineHarness()
    log = harness.create(FIRST)
    harness.append(log, 30)
    harness.run_jobs("checkpoint")
    expected = {FIRST: log.high_watermark}
    disk = harness.disk.survivor_of_kill()
    disk.flip_bit(f"{log.directory}/{_list_bases(disk, log.directory)[-1]}.log", 8 * 70)
    first = harness.after(disk)
    assert any("cutting" in text for text in first.reports)
    end_offset = first.logs[FIRST].log_end_offset
    again = harness.after(disk.survivor_of_kill())
    assert again.engine.short() == first.engine.short() == expected
    assert again.logs[FIRST].log_end_offset == end_offset


def test_a_log_without_any_segment_is_still_short_after_another_crash() -> None:
    harness = EngineHarness()
    log = harness.create(FIRST)
    harness.append(log, 30)
    harness.run_jobs("checkpoint")
    expected = {FIRST: log.high_watermark}
    disk = harness.disk.survivor_of_kill()
    for base in _list_bases(disk, log.directory):
        disk.remove(f"{log.directory}/{base}.log")
    assert harness.after(disk).engine.short() == expected
    assert harness.after(disk.survivor_of_kill()).engine.short() == expected


def _list_bases(disk: SimulatedDisk, folder: str) -> list[str]:
    return sorted(
        path.rpartition("/")[2].removesuffix(".log")
        for path in disk.files()
        if path.startswith(f"{folder}/") and path.endswith(".log")
    )
