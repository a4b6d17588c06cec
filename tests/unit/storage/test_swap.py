from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from tests.profile import scaled
from tests.unit.storage.compacted_logs import FOLDER, Table, iter_batches, reopen

from penstock.config.log_config import LogConfig
from penstock.model.ids import Offset
from penstock.storage.swap import Swap, finish_swaps
from penstock.storage.transaction_index import AbortedTxn
from penstock.testing.simulated_disk import (
    KeepEverything,
    LoseEverything,
    OperationKind,
    SeededChoice,
    SimulatedCrash,
    SimulatedDisk,
)

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))
SEEDS = scaled(test=2, verify=20, release=50)
FEW_SEEDS = scaled(test=0, verify=2, release=5)
LEFTOVERS = (".cleaned", ".swap", ".deleted", ".tmp")


class State(NamedTuple):
    batches: tuple[bytes, ...]
    aborted: tuple[AbortedTxn, ...]
    bases: tuple[int, ...]


def names(disk: SimulatedDisk) -> set[str]:
    return {entry.name for entry in disk.list(FOLDER)}


def finish(disk: SimulatedDisk) -> None:
    finish_swaps(disk, FOLDER, names(disk))


def state_of(disk: SimulatedDisk) -> State:
    log = reopen(disk, CONFIG)
    return State(
        tuple(content for _, content in iter_batches(log)),
        tuple(log.aborted(Offset(0), log.log_end_offset)),
        tuple(segment.base_offset for segment in log.segments),
    )


def durable(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.survivor_of_power_cut(KeepEverything())


def make_disk(*, first_aborts: bool, later_aborts: bool) -> SimulatedDisk:
    """Make three sealed segments and the active one, with aborted transactions on request.

    Producers that stay active keep an empty batch, and so the index entry of their transaction.
    """
    table = Table()
    table.put((b"a", b"1"), (b"b", b"1"))
    table.put((b"x", b"1"), pid=1, transactional=True)
    table.end(1, commit=not first_aborts)
    table.roll()
    table.put((b"a", b"2"))
    table.put((b"y", b"1"), pid=2, transactional=True)
    table.end(2, commit=not later_aborts)
    table.roll()
    table.put((b"b", b"2"), (b"c", None))
    table.roll()
    table.put((b"z", b"1"))
    return durable(table.disk)


def compact(disk: SimulatedDisk) -> None:
    Table.on(disk, CONFIG).compact()


def crashes(
    disk: SimulatedDisk, work: Callable[[SimulatedDisk], None], *, seeds: int
) -> Iterator[SimulatedDisk]:
    """Yield the disk after every possible crash during the work, by kill and by power failure."""
    ordinal = 0
    while True:
        victim = disk.copy()
        victim.crash_before(ordinal)
        try:
            work(victim)
        except SimulatedCrash:
            yield victim.survivor_of_kill()
            yield victim.survivor_of_power_cut(LoseEverything())
            yield victim.survivor_of_power_cut(KeepEverything())
            for seed in range(seeds):
                yield victim.survivor_of_power_cut(SeededChoice(seed))
        else:
            return
        ordinal += 1


@pytest.mark.parametrize("first_aborts", [False, True])
@pytest.mark.parametrize("later_aborts", [False, True])
def test_a_crash_at_any_call_of_a_pass_leaves_the_old_segments_or_the_new_one(
    first_aborts: bool, later_aborts: bool
) -> None:
    disk = make_disk(first_aborts=first_aborts, later_aborts=later_aborts)
    old = state_of(disk.copy())
    compacted = disk.copy()
    compact(compacted)
    new = state_of(compacted)
    assert old.bases != new.bases
    outcomes = set()
    for survivor in crashes(disk, compact, seeds=SEEDS):
        finish(survivor)
        assert not [name for name in names(survivor) if name.endswith(LEFTOVERS)]
        outcome = state_of(survivor)
        assert outcome in (old, new)
        outcomes.add(outcome)
    assert outcomes == {old, new}


def test_finishing_a_swap_can_crash_at_any_call_and_be_repeated() -> None:
    disk = make_disk(first_aborts=True, later_aborts=True)
    old = state_of(disk.copy())
    compacted = disk.copy()
    compact(compacted)
    new = state_of(compacted)
    victims = 0
    for left in crashes(disk, compact, seeds=FEW_SEEDS):
        if not any(name.endswith(LEFTOVERS) for name in names(left)):
            continue
        finished = left.copy()
        finish(finished)
        expected = state_of(finished)
        for survivor in crashes(left, finish, seeds=FEW_SEEDS):
            finish(survivor)
            assert not [name for name in names(survivor) if name.endswith(LEFTOVERS)]
            outcome = state_of(survivor)
            # A power failure may undo what was not durable, and so restore the state before the
            # commit.
            assert outcome in (old, new)
            if new == expected and outcome == old:
                assert state_of(durable_loss(left)) == old
            victims += 1
    assert victims > 0


def durable_loss(disk: SimulatedDisk) -> SimulatedDisk:
    lost = disk.survivor_of_power_cut(LoseEverything())
    finish(lost)
    return lost


def test_finishing_a_swap_twice_changes_nothing() -> None:
    disk = make_disk(first_aborts=True, later_aborts=True)
    for left in crashes(disk, compact, seeds=SEEDS):
        finish(left)
        once = left.files()
        finish(left)
        assert left.files() == once


def test_a_folder_without_leftovers_is_not_touched() -> None:
    disk = make_disk(first_aborts=True, later_aborts=False)
    before = len(disk.trace)
    finish(disk)
    assert len(disk.trace) == before


def write(disk: SimulatedDisk, name: str, content: bytes = b"") -> None:
    descriptor = disk.open(f"{FOLDER}/{name}", 0o102 | 0o2000)
    disk.write(descriptor, content)
    disk.close(descriptor)


def test_leftovers_are_removed_and_other_files_stay() -> None:
    disk = SimulatedDisk(FOLDER)
    for name in (
        "00000000000000000007.snapshot.deleted",
        "00000000000000000009.log.deleted",
        "00000000000000000009.timeindex.cleaned",
        "leader-epoch-checkpoint.tmp",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "00000000000000000007.snapshot",
    ):
        write(disk, name)
    finish(disk)
    assert names(disk) == {
        "leader-epoch-checkpoint",
        "partition.metadata",
        "00000000000000000007.snapshot",
    }


def kafka_stages(disk: SimulatedDisk) -> SimulatedDisk:
    """Return the new segment's files as `.cleaned`, next to the old segments, before any rename."""
    whole = disk.copy()
    compact(whole)
    first_rename = next(
        ordinal
        for ordinal, operation in enumerate(whole.trace)
        if operation.kind is OperationKind.RENAME and operation.path.endswith(".cleaned")
    )
    victim = disk.copy()
    victim.crash_before(first_rename)
    with pytest.raises(SimulatedCrash):
        compact(victim)
    return durable(victim)


def test_kafkas_log_first_renames_are_undone_until_the_last_one() -> None:
    disk = make_disk(first_aborts=True, later_aborts=True)
    old = state_of(disk.copy())
    staged = kafka_stages(disk)
    stem = f"{FOLDER}/00000000000000000000"
    for count in range(4):
        left = staged.copy()
        for suffix in (".log", ".index", ".timeindex", ".txnindex")[:count]:
            left.rename(f"{stem}{suffix}.cleaned", f"{stem}{suffix}.swap")
        finish(left)
        assert state_of(left) == old


def test_kafkas_swap_is_rolled_forward_with_any_remains_of_the_old_segments() -> None:
    disk = make_disk(first_aborts=True, later_aborts=True)
    compacted = disk.copy()
    compact(compacted)
    new = state_of(compacted)
    staged = kafka_stages(disk)
    stem = f"{FOLDER}/00000000000000000000"
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        staged.rename(f"{stem}{suffix}.cleaned", f"{stem}{suffix}.swap")
    old_files = sorted(n for n in names(staged) if n[:20] in ("0" * 20, f"{4:020d}", f"{7:020d}"))
    for gone in [*(n for n in old_files if not n.endswith((".swap", ".snapshot")))]:
        left = staged.copy()
        left.unlink(f"{FOLDER}/{gone}")
        finish(left)
        assert state_of(left) == new
    # Kafka renames files in the order log, index, time index, transaction index.
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        if suffix == ".log":
            for name in old_files:
                if not name.endswith((".swap", ".snapshot")):
                    staged.unlink(f"{FOLDER}/{name}")
        staged.rename(f"{stem}{suffix}.swap", f"{stem}{suffix}")
        left = staged.copy()
        finish(left)
        assert state_of(left) == new


def test_companions_without_a_segment_are_removed() -> None:
    disk = SimulatedDisk(FOLDER)
    write(disk, "00000000000000000009.txnindex.swap")
    finish(disk)
    assert names(disk) == set()


def test_an_undone_swap_is_discarded_and_the_old_segments_stay() -> None:
    disk = make_disk(first_aborts=True, later_aborts=True)
    old = state_of(disk.copy())
    staged = kafka_stages(disk)
    swap = Swap(staged, FOLDER, base_offset=0, old_base_offsets=[0, 4, 7])
    swap.commit()
    swap.undo()
    left = staged.copy()
    finish(left)
    assert state_of(left) == old
    swap.discard()
    assert not [name for name in names(staged) if name.endswith(LEFTOVERS)]
    assert state_of(staged) == old
