"""Recovery with checkpoints and indexes that are older than the batches."""

import pytest
from tests.unit.storage.crashing_logs import FOLDER, Broker

from penstock.config.log_config import LogConfig
from penstock.io.disk import CREATE
from penstock.model.ids import LeaderEpoch, Offset
from penstock.protocol.batch import MAGIC_POSITION, iter_headers
from penstock.storage.leader_epoch_cache import EPOCH_FILE
from penstock.testing.simulated_disk import LoseEverything, SimulatedDisk
from penstock.testing.simulated_faults import MUTATIONS, OperationKind


@pytest.fixture
def broker() -> Broker:
    return Broker(SimulatedDisk("/d"))


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{FOLDER}/{base_offset:020d}{suffix}"


def test_zeros_at_the_end_of_an_index_are_ignored(broker: Broker) -> None:
    """The size of a file may become durable before its blocks."""
    broker.follow(3)  # a gap before the first batch makes recovery use the index
    broker.flush()
    survivor = broker.disk.survivor_of_kill()
    later = broker.after(_with_zeros(survivor, segment_file(0, ".index")))
    assert later.offsets() == [3]


def _with_zeros(disk: SimulatedDisk, path: str) -> SimulatedDisk:

    descriptor = disk.open(path, CREATE)
    disk.write(descriptor, bytes(24))
    disk.close(descriptor)
    return disk.copy()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_after_a_lost_one_is_removed(policy: str) -> None:
    config = LogConfig(
        segment_bytes=300, index_interval_bytes=0, cleanup_policy=frozenset({policy})
    )
    broker = Broker(SimulatedDisk("/d"), config)
    for _ in range(8):
        broker.append()
    second, third = (segment.base_offset for segment in list(broker.log.segments)[1:3])
    survivor = broker.disk.survivor_of_kill()
    survivor.cut(segment_file(second, ".log"), 0)
    later = broker.after(survivor)
    assert later.offsets() == list(range(second))
    assert segment_file(third, ".log") not in later.disk.files()


def test_epochs_of_lost_batches_do_not_contradict_new_ones(
    broker: Broker,
) -> None:
    broker.append(epoch=3)
    broker.append(epoch=3)
    broker.append(epoch=6)
    broker.flush()
    survivor = broker.disk.survivor_of_kill()
    size = len(survivor.files()[segment_file(broker.log.segments[0].base_offset, ".log")])
    survivor.cut(segment_file(broker.log.segments[-1].base_offset, ".log"), 0)
    survivor.cut(segment_file(0, ".log"), size // 2)
    later = broker.after(survivor)
    end = later.log.log_end_offset
    later.follow(end, epoch=4)
    again = later.after(later.disk.survivor_of_kill())
    assert again.offsets()[-1] == end
    assert again.log.find_epoch_end(LeaderEpoch(4)) == (4, end + 1)


def test_a_folder_without_segments_has_no_epochs(broker: Broker) -> None:
    broker.append(epoch=3)
    broker.append(epoch=5)
    broker.flush()
    survivor = broker.disk.survivor_of_kill()
    for path in list(survivor.files()):
        if path.endswith(".log"):
            survivor.remove(path)
    later = broker.after(survivor)
    assert later.log.latest_epoch == -1
    assert later.disk.files()[f"{FOLDER}/{EPOCH_FILE}"] == b"0\n0\n"


def test_opening_a_log_without_an_epoch_checkpoint_syncs_nothing(broker: Broker) -> None:
    """A start after a kill with 10,000 new logs would sync each twice.

    The next flush does it instead.
    """
    broker.append(epoch=3)
    broker.append(epoch=5)
    later = broker.after(broker.disk.survivor_of_kill())
    synced = [
        operation.path
        for operation in later.disk.trace
        if operation.kind in (OperationKind.SYNC, OperationKind.RENAME)
    ]
    assert not [path for path in synced if path.startswith(FOLDER)]
    assert later.log.latest_epoch == 5
    again = later.after(later.disk.survivor_of_kill())
    assert again.log.find_epoch_end(LeaderEpoch(3)) == later.log.find_epoch_end(LeaderEpoch(3))
    again.flush()
    assert f"{FOLDER}/{EPOCH_FILE}" in again.disk.survivor_of_power_cut(LoseEverything()).files()


def test_a_start_after_a_clean_shutdown_writes_no_epochs_of_an_empty_log(broker: Broker) -> None:
    broker.log.begin_epoch(LeaderEpoch(4))
    broker.engine.close()
    later = broker.after(broker.disk.survivor_of_kill())
    assert later.log.latest_epoch == 4
    changed = {operation.path for operation in later.disk.trace if operation.kind in MUTATIONS}
    assert not [path for path in changed if EPOCH_FILE in path]


def test_the_largest_timestamp_survives_the_loss_of_an_index_that_was_never_synced() -> None:
    broker = Broker(SimulatedDisk("/d"))
    broker.append()
    broker.flush()
    broker.log.roll(2_000_000)
    broker.checkpoint()
    later = broker.after(broker.disk.survivor_of_power_cut(LoseEverything()))
    assert later.log.find_max_timestamp() == (0, 1_000_000, 0)


def test_an_interrupted_log_restart_is_repeated(broker: Broker) -> None:
    for _ in range(6):
        broker.append(epoch=2)
    broker.flush()
    broker.log.restart_at(Offset(50), 2_000_000)
    later = broker.after(broker.disk.survivor_of_power_cut(LoseEverything()))
    assert later.offsets() == []
    assert later.log.log_start_offset == later.log.log_end_offset


@pytest.mark.parametrize("is_clean", [True, False])
def test_damage_below_the_recovery_point_truncates_the_log_but_does_not_stop_the_start(
    broker: Broker, is_clean: bool
) -> None:
    """Without snapshots the producers are replayed from unchecked batches."""
    for _ in range(8):
        broker.append()
    broker.flush()
    broker.checkpoint()
    second = broker.log.segments[1].base_offset
    if is_clean:
        broker.engine.close()
    survivor = broker.disk.survivor_of_kill()
    for path in [path for path in survivor.files() if path.endswith(".snapshot")]:
        survivor.remove(path)
    survivor.flip_bit(segment_file(second, ".log"), 8 * MAGIC_POSITION)
    later = broker.after(survivor)
    assert later.offsets() == list(range(second))


@pytest.mark.parametrize("leftover", [".log.deleted", ".log.swap"])
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_gap_left_by_kafkas_cleaner_is_not_a_loss(policy: str, leftover: str) -> None:
    """Kafka was killed in a pass, before its cleaner checkpoint.

    Replaced segments prove the pass.
    """
    config = LogConfig(
        segment_bytes=300, index_interval_bytes=0, cleanup_policy=frozenset({policy})
    )
    broker = Broker(SimulatedDisk("/d"), config)
    for _ in range(8):
        broker.append()
    second, third = (segment.base_offset for segment in list(broker.log.segments)[1:3])
    survivor = broker.disk.survivor_of_kill()
    content = survivor.files()[segment_file(second, ".log")]
    (_, first), *_ = iter_headers(content)
    survivor.cut(segment_file(second, ".log"), first.size)
    _write(survivor, segment_file(second, leftover), content[: first.size])
    later = broker.after(survivor)
    kept = [*range(second + 1), *range(third, 8)] if policy == "compact" else [*range(second + 1)]
    assert later.offsets() == kept
    assert [name for name in later.disk.files() if name.endswith(leftover)] == []


def _write(disk: SimulatedDisk, path: str, content: bytes) -> None:
    descriptor = disk.open(path, CREATE)
    disk.write(descriptor, content)
    disk.close(descriptor)
