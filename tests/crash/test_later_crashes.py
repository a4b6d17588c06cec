"""A second crash: what the first recovery restored must survive it."""

from collections.abc import Callable
from threading import Thread

from tests.crash.crash_run import Deferred
from tests.crash.harness import (
    DATA,
    FOLDER,
    NOW_MS,
    PARTITION,
    Opened,
    Step,
    append_steps,
    create,
    data_batch,
    flush,
    look,
    scenario,
    start,
    write_scenario,
)
from tests.profile import scaled

from penstock.model.ids import LeaderEpoch, Offset
from penstock.storage.checkpoints import RECOVERY_POINT_FILE, read_offsets
from penstock.storage.engine import AppendItem, LogAppendInfo
from penstock.storage.leader_epoch_cache import EPOCH_FILE, EpochEntry, read_epochs
from penstock.storage.partition_metadata import CLEAN_SHUTDOWN_FILE
from penstock.testing.simulated_disk import LoseEverything, SeededChoice, SimulatedDisk


def _crashed_after_a_clean_stop() -> SimulatedDisk:
    """A disk on which everything is durable and checkpointed, without a clean shutdown marker."""
    disk = SimulatedDisk(DATA)
    engine, _ = write_scenario(disk, scenario())
    engine.close()
    disk.remove(f"{DATA}/{CLEAN_SHUTDOWN_FILE}")
    return disk.survivor_of_kill()


def test_a_log_cut_by_recovery_is_not_trusted_up_to_its_old_end() -> None:
    """The recovery point moves back with the log end. Otherwise the next start would take new,
    unsynced segments for the old, synced ones."""
    disk = _crashed_after_a_clean_stop()
    disk.remove(f"{FOLDER}/leader-epoch-checkpoint")  # so that recovery reads the whole log
    disk.flip_bit(f"{FOLDER}/{14:020d}.log", 8 * 100)
    late = Deferred()
    engine, logs = start(disk, background=late)
    log = logs[PARTITION]
    cut_at = log.log_end_offset
    assert cut_at == 14
    points = read_offsets(disk, f"{DATA}/{RECOVERY_POINT_FILE}")
    assert points[PARTITION] <= cut_at
    append_steps(engine, log, [Step(data_batch(60 + n), 5) for n in range(16)])
    written = look(log, disk).batches
    for seed in range(scaled(test=60, verify=400, release=4000)):
        survivor = disk.survivor_of_power_cut(SeededChoice(seed))
        seen = look(start(survivor).log, survivor)
        assert seen.batches == written[: len(seen.batches)]
        assert seen.log_end_offset >= cut_at


def test_a_folder_without_a_segment_ignores_snapshots_and_epochs() -> None:
    """An interrupted restart removed all segments, so the old producers are unknown."""
    disk = _crashed_after_a_clean_stop()
    for path in list(disk.files()):
        if path.startswith(FOLDER) and path.endswith((".log", "index")):
            disk.remove(path)
    engine, logs = start(disk)
    log = logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert not [path for path in disk.files() if path.endswith(".snapshot")]
    batches = [data_batch(n, producer_id=5, sequence=2 * n) for n in range(20)]
    append_steps(engine, log, [Step(batch, 0) for batch in batches])
    flush(engine, log)
    survivor = disk.survivor_of_power_cut(LoseEverything())
    recovered = start(survivor)
    assert look(recovered.log, survivor) == look(log, disk)
    assert _next_sequence_is_taken(recovered, 40)


def _next_sequence_is_taken(opened: Opened, sequence: int) -> bool:
    batch = data_batch(80, producer_id=5, sequence=sequence)
    item = AppendItem(opened.log, memoryview(batch), LeaderEpoch(0))
    return isinstance(opened.engine.append([item], NOW_MS)[0], LogAppendInfo)


def test_checkpoints_gathered_before_a_truncation_are_not_written_after_it() -> None:
    """The job reads offsets on the owner and writes them later; a truncation may come between."""
    disk = SimulatedDisk(DATA)
    engine, logs = write_scenario(disk, scenario())
    log = logs[PARTITION]
    flush(engine, log)
    engine.due_jobs(NOW_MS)
    (job,) = [job for job in engine.due_jobs(NOW_MS + 10**9) if job.name == "checkpoint"]

    def cut_afterwards(function):  # type: ignore[no-untyped-def]
        result = function()
        log.truncate_to(Offset(12), NOW_MS)
        return result

    job.run(cut_afterwards)
    points = read_offsets(disk, f"{DATA}/{RECOVERY_POINT_FILE}")
    assert points.get(PARTITION, 0) <= 12


class _InterruptedDisk(SimulatedDisk):
    """Calls back right before the epoch checkpoint is renamed."""

    def __init__(self, *directories: str) -> None:
        super().__init__(*directories)
        self.interrupts: list[Callable[[], None]] = []

    def rename(self, source: str, target: str) -> None:
        if target.endswith(EPOCH_FILE) and self.interrupts:
            self.interrupts.pop()()
        super().rename(source, target)


def test_a_truncation_during_a_flush_decides_the_epochs() -> None:
    """The truncation comes between the flusher's check for truncations and its write."""
    disk = _InterruptedDisk(DATA)
    late = Deferred()
    engine, _ = start(disk, background=late)
    log = create(engine)
    append_steps(engine, log, [Step(data_batch(number), number) for number in range(5)])
    engine.flush(log, log.log_end_offset, lambda error: None)
    owner = Thread(target=lambda: log.truncate_to(Offset(4), NOW_MS))

    def cut() -> None:
        owner.start()
        owner.join(0.1)  # if it has to wait for the flusher, it waits for longer

    disk.interrupts.append(cut)
    late.drain()
    owner.join()
    assert not disk.interrupts, "the flusher wrote no epochs"
    written = read_epochs(disk, f"{FOLDER}/{EPOCH_FILE}")
    assert written == [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(1), Offset(2))]
    assert log.failure is None
