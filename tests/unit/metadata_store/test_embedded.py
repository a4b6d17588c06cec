"""The embedded store: restarts, group commit, limits and disk errors."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EIO, ENOSPC
from pathlib import Path

import pytest
from tests.unit.metadata_store.backends import RecordingWatch

from penstock.io.disk import RealDisk
from penstock.logs.event_logger import message_logger
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.errors import (
    ConnectionLoss,
    NoNode,
    SessionExpired,
    StoreDamaged,
    StoreLocked,
)
from penstock.metadata_store.interface import Create, Created, EventKind, SessionState
from penstock.testing.simulated_disk import OperationKind, SimulatedDisk

FOLDER = "/data/coordination"
JOURNAL = f"{FOLDER}/journal"
SNAPSHOT = f"{FOLDER}/snapshot"


def syncs(disk: SimulatedDisk) -> int:
    return sum(o.kind is OperationKind.SYNC and o.path == JOURNAL for o in disk.trace)


def test_a_restart_keeps_znodes_and_ends_sessions() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        session = await store.open_session()
        await session.create("/q", b"kept")
        await session.create("/q/e-", ephemeral=True, sequential=True)
        last = (await session.create("/q/p-", sequential=True)).stat
        await store.close()
        assert disk.open_descriptors == 0

        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        again = await store.open_session()
        assert await again.children("/q") == ("p-0000000001",)
        assert (await again.get("/q")).data == b"kept"
        created = await again.create("/q/p-", sequential=True)
        assert created.path == "/q/p-0000000002"
        assert created.stat.czxid > last.czxid
        assert again.id != session.id
        await store.close()

    asyncio.run(scenario())


def test_concurrent_writes_share_a_sync() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        session = await store.open_session()
        before = syncs(disk)
        await asyncio.gather(*(session.create(f"/n{number}") for number in range(100)))
        assert syncs(disk) == before + 1
        await store.close()

    asyncio.run(scenario())


def test_the_event_loop_is_not_blocked_by_the_disk(tmp_path: Path) -> None:
    """The sync ends only when the event loop lets it: a sync on the loop would deadlock."""
    released = BlockedDisk()

    async def scenario(executor: ThreadPoolExecutor) -> None:
        store = await EmbeddedMetadataStore.open(released, str(tmp_path / "c"), executor=executor)
        session = await store.open_session()
        other = await store.open_session()
        await session.create("/a", b"one")
        released.block()
        write = asyncio.create_task(session.set("/a", b"two"))
        await asyncio.to_thread(released.wait_reached)
        assert (await other.get("/a")).data == b"one"  # not visible before it is durable
        assert not write.done()
        released.release()
        await write
        assert (await other.get("/a")).data == b"two"
        await store.close()

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(scenario(executor))


class BlockedDisk(RealDisk):
    """A disk whose syncs can be blocked."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self._reached = threading.Event()

    def sync(self, descriptor: int) -> None:
        if not self._free.is_set():
            self._reached.set()
        assert self._free.wait(180)
        super().sync(descriptor)

    def block(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def wait_reached(self) -> None:
        assert self._reached.wait(180)


def test_a_snapshot_truncates_the_journal() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER, journal_limit_bytes=4000)
        session = await store.open_session()
        await session.create("/a")
        for turn in range(200):
            await session.set("/a", b"%d" % turn)
            assert store.statistics().journal_bytes <= 4100
        assert store.statistics().snapshots >= 2
        zxid = store.statistics().zxid
        await store.close()
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        again = await store.open_session()
        data, stat = await again.get("/a")
        assert (data, stat.version, stat.mzxid) == (b"199", 200, zxid)
        await store.close()

    asyncio.run(scenario())


def test_a_large_snapshot_is_not_rewritten_for_a_small_journal() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER, journal_limit_bytes=1000)
        session = await store.open_session()
        await session.create("/large", bytes(100_000))
        for turn in range(100):
            await session.set("/", b"%d" % turn)
        assert store.statistics().snapshots == 1
        await store.close()

    asyncio.run(scenario())


def test_a_second_process_cannot_open_the_store() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        with pytest.raises(StoreLocked, match="in use by another process"):
            await EmbeddedMetadataStore.open(disk, FOLDER)
        await store.close()
        await (await EmbeddedMetadataStore.open(disk, FOLDER)).close()
        assert disk.open_descriptors == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [EIO, ENOSPC])
@pytest.mark.parametrize("kind", [OperationKind.WRITE, OperationKind.SYNC])
def test_after_a_disk_error_nothing_is_accepted(error: int, kind: OperationKind) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        session = await store.open_session()
        await session.create("/a")
        states: list[SessionState] = []
        session.listen(states.append)
        disk.fail_path(JOURNAL, error, {kind})
        remedy = "make room on that disk" if error == ENOSPC else "repair or replace the disk"
        writes = [session.create("/b"), session.set("/a", b"x"), session.get("/a")]
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            assert isinstance(outcome, ConnectionLoss)
        disk.heal()
        for request in (session.create("/c"), session.get("/a"), store.open_session()):
            with pytest.raises(ConnectionLoss, match=remedy):
                await request
        with pytest.raises(ConnectionLoss, match=f"in {FOLDER} has stopped .*{remedy}"):
            await store.wait_end()
        assert states == [SessionState.SUSPENDED]
        assert isinstance(store.failure, OSError)
        await store.close()

        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        again = await store.open_session()
        assert (await again.get("/a")).stat.czxid > 0
        assert await again.exists("/c") is None
        await store.close()

    asyncio.run(scenario())


def test_a_torn_tail_is_truncated_and_reported() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        await fill(disk, 3)
        whole = len(disk.files()[JOURNAL])
        disk.cut(JOURNAL, whole - 1)
        reports: list[str] = []
        store = await EmbeddedMetadataStore.open(
            disk, FOLDER, logger=message_logger(reports.append)
        )
        session = await store.open_session()
        assert await session.children("/") == ("n0", "n1")
        await store.close()
        assert [f"{JOURNAL} ends in" in report for report in reports] == [True]

    asyncio.run(scenario())


def test_damage_before_the_end_stops_recovery() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        await fill(disk, 3)
        files = disk.files()
        for position in range(0, len(files[JOURNAL]) // 2, 7):
            damaged = disk.copy()
            damaged.flip_bit(JOURNAL, 8 * position)
            with pytest.raises(StoreDamaged, match="restore the directory from a copy"):
                await EmbeddedMetadataStore.open(damaged, FOLDER)
            assert damaged.files()[JOURNAL] != files[JOURNAL]
            assert damaged.open_descriptors == 0

    asyncio.run(scenario())


def test_a_damaged_snapshot_stops_recovery() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        await fill(disk, 20, journal_limit_bytes=300)
        for position in range(len(disk.files()[SNAPSHOT])):
            damaged = disk.copy()
            damaged.flip_bit(SNAPSHOT, 8 * position)
            with pytest.raises(StoreDamaged, match="not a snapshot"):
                await EmbeddedMetadataStore.open(damaged, FOLDER)
        disk.cut(SNAPSHOT, 3)
        with pytest.raises(StoreDamaged, match="not a snapshot"):
            await EmbeddedMetadataStore.open(disk, FOLDER)

    asyncio.run(scenario())


async def fill(disk: SimulatedDisk, count: int, journal_limit_bytes: int = 1 << 20) -> None:
    store = await EmbeddedMetadataStore.open(disk, FOLDER, journal_limit_bytes=journal_limit_bytes)
    session = await store.open_session()
    for number in range(count):
        await session.create(f"/n{number}")
    await store.close()


def test_close_finishes_queued_commands_and_ends_sessions() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        session = await store.open_session()
        witness = RecordingWatch()
        await session.exists("/never", witness)
        write = asyncio.create_task(session.create("/a"))
        await asyncio.sleep(0)
        await store.close()
        assert (await write).path == "/a"
        assert [event.kind for event in witness.events] == [EventKind.SESSION_ENDED]
        with pytest.raises(SessionExpired):
            await session.get("/a")
        with pytest.raises(ConnectionLoss, match="closed"):
            await store.open_session()

    asyncio.run(scenario())


def test_a_cancelled_write_takes_effect_before_the_next_read() -> None:
    async def scenario() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), FOLDER)
        session = await store.open_session()
        write = asyncio.create_task(session.create("/a"))
        await asyncio.sleep(0)
        write.cancel()
        assert await session.exists("/a") is not None
        with pytest.raises(asyncio.CancelledError):
            await write
        await store.close()

    asyncio.run(scenario())


def test_a_session_whose_opening_was_cancelled_is_ended() -> None:
    async def scenario() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), FOLDER)
        opening = asyncio.create_task(store.open_session())
        await asyncio.sleep(0)
        opening.cancel()
        session = await store.open_session()
        await session.create("/a")
        assert store.tree.sessions == {session.id}
        await store.close()

    asyncio.run(scenario())


def test_a_failing_watch_stops_the_store_and_wait_end_raises_it() -> None:
    async def scenario() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), FOLDER)
        session = await store.open_session()
        supervisor = asyncio.create_task(store.wait_end())
        error = ValueError("a bug")
        witness = RecordingWatch()
        await session.exists("/a", failing(error))
        await session.exists("/a", witness)
        done, lost = await asyncio.gather(
            session.create("/a"), session.create("/b"), return_exceptions=True
        )
        assert isinstance(done, Created)
        assert isinstance(lost, ConnectionLoss)
        assert len(witness.events) == 1
        assert store.failure is error
        with pytest.raises(ValueError, match="a bug"):
            await supervisor
        with pytest.raises(ConnectionLoss, match=r"a bug.*: restart the broker"):
            await session.get("/a")
        with pytest.raises(ValueError, match="a bug"):
            await store.close()

    asyncio.run(scenario())


def test_a_listener_that_fails_during_close_raises() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        session = await store.open_session()
        session.listen(failing(ValueError("a bug")))
        with pytest.raises(ValueError, match="a bug"):
            await store.close()
        assert disk.open_descriptors == 0

    asyncio.run(scenario())


def test_wait_end_raises_the_disk_error() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk("/data")
        store = await EmbeddedMetadataStore.open(disk, FOLDER)
        session = await store.open_session()
        supervisor = asyncio.create_task(store.wait_end())
        disk.fail_path(JOURNAL, EIO, {OperationKind.SYNC})
        with pytest.raises(ConnectionLoss):
            await session.create("/a")
        with pytest.raises(ConnectionLoss, match=FOLDER) as lost:
            await supervisor
        assert isinstance(lost.value.__cause__, OSError)
        disk.heal()
        await store.close()

    asyncio.run(scenario())


def failing(error: Exception) -> Callable[[object], None]:
    def watch(event: object) -> None:
        raise error

    return watch


def test_the_queue_of_writes_is_bounded(tmp_path: Path) -> None:
    blocked = BlockedDisk()

    async def scenario(executor: ThreadPoolExecutor) -> None:
        store = await EmbeddedMetadataStore.open(blocked, str(tmp_path / "c"), executor=executor)
        session = await store.open_session()
        await session.create("/a")
        blocked.block()
        data = bytes(1_000_000)
        writes = [asyncio.create_task(session.set("/a", data)) for _ in range(100)]
        await asyncio.to_thread(blocked.wait_reached)
        refused = [w for w in writes if w.done()]
        assert 20 < len(refused) < 50
        for write in refused:
            with pytest.raises(ConnectionLoss, match="not accepted"):
                await write
        blocked.release()
        answered = await asyncio.gather(*(w for w in writes if w not in refused))
        assert [stat.version for stat in answered] == list(range(1, len(answered) + 1))
        await store.close()

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(scenario(executor))


def test_statistics_count_znodes_sessions_and_watches() -> None:
    async def scenario() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), FOLDER)
        session = await store.open_session()
        await session.multi([Create(path="/a"), Create(path="/a/b")])
        await session.exists("/c", RecordingWatch())
        with pytest.raises(NoNode):
            await session.delete("/none")
        shown = store.statistics()
        assert (shown.zxid, shown.nodes, shown.sessions, shown.watches) == (3, 3, 1, 1)
        assert (shown.queued, shown.rounds, shown.snapshots) == (0, 3, 0)
        await store.close()

    asyncio.run(scenario())
