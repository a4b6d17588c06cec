"""A crash at every disk operation: acknowledged commands survive, and only a prefix of all."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.profile import scaled

from penstock.metadata_store.embedded.journal import recover
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.embedded.znode_tree import (
    Command,
    EndAllSessions,
    EndSession,
    Image,
    OpenSession,
    ZnodeChange,
    ZnodeTree,
)
from penstock.metadata_store.interface import (
    CheckVersion,
    Create,
    Delete,
    Operation,
    SessionId,
    SetData,
)
from penstock.testing.simulated_disk import (
    CrashChoice,
    KeepEverything,
    LoseEverything,
    OperationKind,
    SeededChoice,
    SimulatedCrash,
    SimulatedDisk,
)

FOLDER = "/data/coordination"
NOW_MS = 77
JOURNAL_LIMIT_BYTES = 700
SEEDS = scaled(test=2, verify=40, release=400)

Group = list[Command]  # commands that share a sync


def commands_of(first: int) -> Iterator[Callable[[SessionId], Group]]:
    """Yield a process's commands: every kind, single and batched, some of which fail."""

    def change(*operations: Operation) -> Callable[[SessionId], Command]:
        return lambda session_id: ZnodeChange(session_id, operations)

    yield lambda s: [change(Create(path=f"/p{first}", data=b"0"))(s)]
    for turn in range(first, first + 4):
        yield lambda s, turn=turn: [  # type: ignore[misc]
            change(Create(path=f"/p{first}/e-", ephemeral=True, sequential=True))(s),
            change(SetData(path=f"/p{first}", data=b"%d" % turn * 9))(s),
            change(Delete(path="/none"))(s),
        ]
        yield lambda s, turn=turn: [  # type: ignore[misc]
            change(Create(path=f"/n{turn}", data=bytes(60)), CheckVersion(path=f"/p{first}"))(s),
            OpenSession(),
        ]
        yield lambda s, turn=turn: [change(Delete(path=f"/n{turn}"), Create(path=f"/m{turn}"))(s)]  # type: ignore[misc]
    yield lambda s: [EndSession(s), change(Create(path="/too-late"))(s)]


@dataclass
class Acknowledged:
    """The last zxid that was acknowledged before the crash."""

    zxid: int = 0


async def run_twice(disk: SimulatedDisk, acknowledged: Acknowledged) -> None:
    for first in (10, 20):
        store = await EmbeddedMetadataStore.open(
            disk, FOLDER, now_ms=lambda: NOW_MS, journal_limit_bytes=JOURNAL_LIMIT_BYTES
        )
        try:
            await run_commands(store, first, acknowledged)
        finally:
            await store.close()  # raises the crash


async def run_commands(
    store: EmbeddedMetadataStore, first: int, acknowledged: Acknowledged
) -> None:
    acknowledged.zxid = store.tree.zxid
    session_id = SessionId((await store.submit(OpenSession())).zxid)
    for group in commands_of(first):
        answers = [store.submit(command) for command in group(session_id)]
        for answer in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            acknowledged.zxid = answer.zxid


def histories() -> dict[int, Image]:
    """Return the znodes after each command, without a disk; a restart ends sessions."""
    tree = ZnodeTree()
    images = {0: tree.image()}

    def step(command: Command) -> int:
        zxid = tree.apply(command, NOW_MS).zxid
        images[zxid] = tree.image()
        return zxid

    for first in (10, 20):
        if tree.sessions:
            step(EndAllSessions())
        session_id = SessionId(step(OpenSession()))
        for group in commands_of(first):
            for command in group(session_id):
                step(command)
    return images


HISTORY = histories()


def restarted(image: Image) -> Image:
    tree = ZnodeTree(image)
    if tree.sessions:
        tree.apply(EndAllSessions(), NOW_MS)
    return tree.image()


def run_until_crash(disk: SimulatedDisk) -> Acknowledged:
    acknowledged = Acknowledged()

    async def run() -> None:
        with pytest.raises(SimulatedCrash):
            await run_twice(disk, acknowledged)

    asyncio.run(run())
    return acknowledged


def recovered_image(disk: SimulatedDisk) -> Image:
    recovered = recover(disk, FOLDER, NOW_MS)
    recovered.journal.close()
    assert disk.open_descriptors == 0
    return recovered.tree.image()


def survivors(disk: SimulatedDisk) -> Iterator[SimulatedDisk]:
    yield disk.survivor_of_kill()
    choices: list[CrashChoice] = [LoseEverything(), KeepEverything()]
    for choice in choices + [SeededChoice(seed) for seed in range(SEEDS)]:
        yield disk.survivor_of_power_cut(choice)


def check_survivor(survivor: SimulatedDisk, acknowledged: Acknowledged) -> None:
    image = recovered_image(survivor)
    allowed = [restarted(HISTORY[zxid]) for zxid in range(acknowledged.zxid, len(HISTORY))]
    assert image in allowed
    # Recover again, and after another power failure: what was recovered once stays.
    assert recovered_image(survivor.survivor_of_power_cut(LoseEverything())) == image
    files = survivor.files()
    assert recovered_image(survivor) == image
    assert survivor.files() == files


def calls_of_both_runs() -> list[OperationKind]:
    disk, acknowledged = SimulatedDisk("/data"), Acknowledged()
    asyncio.run(run_twice(disk, acknowledged))
    calls = [operation.kind for operation in disk.trace]
    assert acknowledged.zxid == len(HISTORY) - 1
    assert recovered_image(disk) == restarted(HISTORY[acknowledged.zxid])
    return calls


CALLS = calls_of_both_runs()


def test_the_commands_cause_snapshots_and_recover_to_the_same_znodes() -> None:
    assert CALLS.count(OperationKind.RENAME) >= 3
    assert CALLS.count(OperationKind.TRUNCATE) >= 3


@pytest.mark.parametrize("ordinal", range(len(CALLS)))
def test_a_crash_before_any_disk_operation_keeps_acknowledged_commands(ordinal: int) -> None:
    disk = SimulatedDisk("/data")
    disk.crash_before(ordinal)
    acknowledged = run_until_crash(disk)
    for survivor in survivors(disk):
        check_survivor(survivor, acknowledged)


@pytest.mark.parametrize(
    "ordinal", [o for o, kind in enumerate(CALLS) if kind is OperationKind.WRITE]
)
@pytest.mark.parametrize("keep_bytes", [1, 20, 33, 60])
def test_a_crash_during_a_write_keeps_acknowledged_commands(ordinal: int, keep_bytes: int) -> None:
    disk = SimulatedDisk("/data")
    disk.crash_during(ordinal, keep_bytes)
    acknowledged = run_until_crash(disk)
    for survivor in survivors(disk):
        check_survivor(survivor, acknowledged)


@pytest.mark.parametrize("ordinal", range(0, len(CALLS), 3))
def test_a_crash_during_recovery_changes_nothing(ordinal: int) -> None:
    disk = SimulatedDisk("/data")
    disk.crash_before(ordinal)
    acknowledged = run_until_crash(disk)
    for survivor in (disk.survivor_of_kill(), disk.survivor_of_power_cut(SeededChoice(ordinal))):
        crashes = 0
        while True:
            again = survivor.copy()
            again.crash_before(crashes)
            try:
                recovered_image(again)
                break
            except SimulatedCrash:
                crashes += 1
                check_survivor(again.survivor_of_kill(), acknowledged)
                check_survivor(again.survivor_of_power_cut(SeededChoice(crashes)), acknowledged)
        assert crashes >= 2
