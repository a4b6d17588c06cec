"""Random calls on RealDisk and SimulatedDisk give the same results, errors and files."""

import tempfile
from collections.abc import Callable
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.profile import scaled

from penstock.io.disk import APPEND, CREATE, READ, REPLACE, Disk, RealDisk, read_file
from penstock.testing.simulated_disk import (
    KeepEverything,
    LoseEverything,
    SeededChoice,
    SimulatedDisk,
)

NAMES = st.sampled_from(["a", "b", "d", "e", "d/a", "d/b", "d/e", "d/e/a", "e/a", "a/a"])
FLAGS = st.sampled_from([READ, APPEND, CREATE, REPLACE])


class BothDisks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kernel = cast("Disk", RealDisk())
        self.twin = SimulatedDisk(self.folder.name)
        self.open: list[tuple[int, int]] = []  # the same file's descriptor on both disks

    def path(self, name: str) -> str:
        return f"{self.folder.name}/{name}"

    def both(self, call: Callable[[Disk, int], object], pair: tuple[int, int] = (0, 0)) -> None:
        assert outcome(call, self.kernel, pair[0]) == outcome(call, self.twin, pair[1])

    @rule(name=NAMES, flags=FLAGS)
    def opens(self, name: str, flags: int) -> None:
        path = self.path(name)
        pair = (descriptor_of(self.kernel, path, flags), descriptor_of(self.twin, path, flags))
        assert (pair[0] < 0 and pair[0] == pair[1]) or (pair[0] >= 0 and pair[1] >= 0)
        if pair[0] >= 0:
            self.open.append(pair)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        pair = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.both(lambda disk, descriptor: disk.close(descriptor), pair)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), content=st.binary(max_size=20))
    def writes(self, data: st.DataObject, content: bytes) -> None:
        pair = data.draw(st.sampled_from(self.open))
        self.both(lambda disk, descriptor: disk.write(descriptor, content), pair)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), length=st.integers(-1, 40))
    def truncates(self, data: st.DataObject, length: int) -> None:
        pair = data.draw(st.sampled_from(self.open))
        self.both(lambda disk, descriptor: disk.truncate(descriptor, length), pair)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), length=st.integers(0, 30), position=st.integers(0, 40))
    def reads(self, data: st.DataObject, length: int, position: int) -> None:
        pair = data.draw(st.sampled_from(self.open))
        self.both(lambda disk, descriptor: disk.pread(descriptor, length, position), pair)
        self.both(lambda disk, descriptor: into_buffer(disk, descriptor, length, position), pair)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def locks(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.open))
        self.both(lambda disk, descriptor: disk.try_lock(descriptor), pair)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def syncs(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.open))
        self.both(lambda disk, descriptor: disk.sync(descriptor), pair)

    @rule(name=NAMES)
    def syncs_directory(self, name: str) -> None:
        self.both(lambda disk, _: disk.sync_directory(self.path(name)))

    @rule(seed=st.integers(0, 2**32))
    def survives_a_power_cut_whole_when_all_is_synced(self, seed: int) -> None:
        survivor = self.twin.survivor_of_power_cut(SeededChoice(seed))
        twin = self.twin.copy()
        sync_all(twin, self.folder.name)
        sync_all(survivor, self.folder.name)
        assert twin.survivor_of_power_cut(LoseEverything()).files() == self.twin.files()
        assert survivor.survivor_of_power_cut(LoseEverything()).files() == survivor.files()

    @rule(name=NAMES)
    def makes_directory(self, name: str) -> None:
        self.both(lambda disk, _: disk.make_directory(self.path(name)))

    @rule(name=NAMES)
    def removes_directory(self, name: str) -> None:
        self.both(lambda disk, _: disk.remove_directory(self.path(name)))

    @rule(old=NAMES, new=NAMES)
    def renames(self, old: str, new: str) -> None:
        self.both(lambda disk, _: disk.rename(self.path(old), self.path(new)))

    @rule(name=NAMES)
    def unlinks(self, name: str) -> None:
        self.both(lambda disk, _: disk.unlink(self.path(name)))

    @invariant()
    def same_files(self) -> None:
        assert tree(self.kernel, self.folder.name) == tree(self.twin, self.folder.name)
        assert self.twin.open_descriptors == len(self.open)

    @invariant()
    def pending_operations_add_up(self) -> None:
        kept = self.twin.survivor_of_power_cut(KeepEverything())
        assert kept.files() == self.twin.copy().files() == self.twin.files()

    def teardown(self) -> None:
        for descriptor, _ in self.open:
            self.kernel.close(descriptor)
        self.folder.cleanup()


def outcome(call: Callable[[Disk, int], object], disk: Disk, descriptor: int) -> object:
    try:
        return call(disk, descriptor)
    except OSError as error:
        return ("errno", error.errno)


def descriptor_of(disk: Disk, path: str, flags: int) -> int:
    """Return the descriptor, or the negative errno if the file does not open."""
    try:
        return disk.open(path, flags)
    except OSError as error:
        return -(error.errno or 0)


def into_buffer(disk: Disk, descriptor: int, length: int, position: int) -> tuple[int, bytes]:
    buffer = bytearray(length)
    return disk.read_into(descriptor, memoryview(buffer), position), bytes(buffer)


def sync_all(disk: Disk, path: str) -> None:
    disk.sync_directory(path)
    for name, is_directory in disk.list(path):
        if is_directory:
            sync_all(disk, f"{path}/{name}")
        else:
            descriptor = disk.open(f"{path}/{name}", READ)
            disk.sync(descriptor)
            disk.close(descriptor)


def tree(disk: Disk, path: str) -> dict[str, object]:
    return {
        name: tree(disk, f"{path}/{name}") if is_directory else read_file(disk, f"{path}/{name}")
        for name, is_directory in disk.list(path)
    }


TestTwinDisks = BothDisks.TestCase
TestTwinDisks.settings = settings(
    max_examples=scaled(test=30, verify=600, release=5000), stateful_step_count=60, deadline=None
)
