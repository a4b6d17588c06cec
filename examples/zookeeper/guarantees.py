"""What ZooKeeper guarantees us, on a real one: broadcast, order, watches, sessions, elections.

`python guarantees.py [broadcast] [order] [watches] [sessions] [elections]` needs Java and nothing
else: ZooKeeper comes with PySpark. Each story checks what it says: the exit code is 0 only if it
holds.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.election import (
    Candidate,
    Election,
    ElectionResult,
    QueueElection,
    RaceElection,
)
from penstock.metadata_store.errors import BadVersion, ConnectionLoss, MultiFailed
from penstock.metadata_store.interface import Create, EventKind, Session, SetData, Watch, WatchEvent
from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from penstock.testing.tcp_gate import TcpGate

PATIENCE_S = 180  # of a story
LONG_MS = 60_000  # sessions that nothing but `close` ends
SHORT_MS = 1_000
CANDIDATES = 10


def main(stories: Sequence[str]) -> None:
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="penstock-zookeeper-"))
    servers = 3 if show_broadcast.__name__ in {STORIES[name].__name__ for name in stories} else 1
    try:
        with ZooKeeperEnsemble(folder, servers=servers) as ensemble:
            for name in stories:
                print(f"\n{name.capitalize()}", flush=True)
                asyncio.run(bounded(STORIES[name](ensemble)))
    finally:
        shutil.rmtree(folder)
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


async def bounded(story: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await story


# -- Broadcast: a write that is answered is on a majority of the servers ---------------------------


async def show_broadcast(ensemble: ZooKeeperEnsemble) -> None:
    async with opened(ensemble.connect) as store:
        session = await store.open_session()
        await session.create("/value", b"0")
        zxids = [(await session.set("/value", b"%d" % n)).mzxid for n in range(1, 6)]
        say(f"five writes have the zxids {', '.join(f'{zxid:#x}' for zxid in zxids)}:")
        say("  all writes have one order, and every server applies them in it")
        assert zxids == sorted(set(zxids))
        for server in ensemble.servers:
            say(f"  server {server.number}, a {server.find_mode()}, reads {await read_at(server)}")
        leader = find_leader(ensemble)
        leader.kill()
        value = await retry(lambda: session.get("/value"))
        say(f"  server {leader.number} led and is killed: the others elect one, and still have it")
        assert value.data == b"5"
        await retry(lambda: session.set("/value", b"6"))
        find_leader(ensemble).kill()
        say("  one server of three is left: no majority, so that it neither writes nor reads")
        try:
            await session.set("/value", b"7")
        except ConnectionLoss:
            say("  a write has no answer: the client does not know whether it counts")
        else:
            raise AssertionError("one server of three has answered a write")
        for server in ensemble.servers:
            server.start()
        value = await retry(lambda: session.get("/value"))
        say(f"  all are back; the session has survived, and the value is {value.data.decode()}")
        assert value.data in (b"6", b"7")


async def read_at(server: Any) -> str:
    async with opened(server.address) as store:
        reader = await store.open_session()
        await reader.sync()  # without it, a follower may not have the last write yet
        value = (await reader.get("/value")).data.decode()
        assert value == "5"
        return value


def find_leader(ensemble: ZooKeeperEnsemble) -> Any:
    return next(server for server in ensemble.servers if server.find_mode() == "leader")


async def retry(ask: Callable[[], Any]) -> Any:
    while True:
        try:
            return await ask()
        except ConnectionLoss:
            await asyncio.sleep(0.05)


# -- Order: one client's requests take effect in the order in which it made them -------------------


async def show_order(ensemble: ZooKeeperEnsemble) -> None:
    async with opened(ensemble.connect) as store:
        writer, reader = await store.open_session(), await store.open_session()
        for name in ("/first", "/second"):
            await writer.create(name, b"0")
        finished: list[int] = []

        async def write(number: int) -> None:
            await writer.set("/first", b"%d" % number)
            finished.append(number)

        tasks = [asyncio.create_task(write(number)) for number in range(1, 101)]
        await asyncio.gather(*tasks)
        assert finished == list(range(1, 101))
        assert (await writer.get("/first")).data == b"100"
        say("100 writes are sent without waiting: they are done and answered in order, and a read")
        say("  that is sent after them sees the last one")

        async def write_both() -> None:
            for number in range(101, 201):
                await asyncio.gather(
                    writer.set("/first", b"%d" % number), writer.set("/second", b"%d" % number)
                )

        async def read_both() -> int:
            reads = second = 0
            while second < 200:
                second = int((await reader.get("/second")).data)
                first = int((await reader.get("/first")).data)
                assert first >= second
                reads += 1
            return reads

        _, reads = await asyncio.gather(write_both(), read_both())
        say(f"another client reads both znodes {reads} times: where it sees the second write of a")
        say("  pair, it sees the first one, too")


# -- Watches: one call for any number of changes, and none is missed -------------------------------


async def show_watches(ensemble: ZooKeeperEnsemble) -> None:
    changes = 100
    async with opened(ensemble.connect) as store:
        writer, watcher = await store.open_session(), await store.open_session()
        await writer.create("/watched", b"0")
        fired = asyncio.Event()
        seen: list[int] = []

        def on_change(event: WatchEvent) -> None:
            assert event == WatchEvent(EventKind.CHANGED, "/watched")
            fired.set()

        async def watch() -> None:
            """Reads and watches in one request: no change fits in between."""
            while not seen or seen[-1] < changes:
                fired.clear()
                seen.append(int((await watcher.get("/watched", on_change)).data))
                if seen[-1] < changes:
                    await fired.wait()

        async def write() -> None:
            for number in range(1, changes + 1):
                await writer.set("/watched", b"%d" % number)

        await asyncio.gather(watch(), write())
        say(
            f"{changes} changes cause {len(seen) - 1} events: an event says that something changed,"
        )
        say("  not what, and not how often; so the watcher reads again, and watches again")
        say(f"  it ends with the last value, {seen[-1]}: every change after a read causes an event")
        assert seen == sorted(set(seen))
        await show_event_first(writer, watcher)


async def show_event_first(writer: Session, watcher: Session) -> None:
    """A client that knows nothing of an event still reads the old data."""
    order: list[str] = []
    await watcher.get("/watched", lambda event: order.append("event"))
    await writer.set("/watched", b"new")
    while (await watcher.get("/watched")).data != b"new":
        order.append("old")
    order.append("new")
    assert [word for word in order if word != "old"] == ["event", "new"]
    assert "old" not in order[order.index("event") :]
    say("  the event comes before the watcher can read the new value")


# -- Sessions: what a client has registered goes with it, all at once ------------------------------


async def show_sessions(ensemble: ZooKeeperEnsemble) -> None:
    port = int(ensemble.servers[0].address.rpartition(":")[2])
    async with opened(ensemble.connect) as store:
        witness = await store.open_session()
        with closing(TcpGate(port)) as gate:
            async with opened(gate.address) as behind:
                session = await behind.open_session()
                await session.create("/broker", ephemeral=True)
                gate.shut()
                gate.open()
                await retry(lambda: session.sync())
                stat = await witness.exists("/broker")
                assert stat is not None
                assert stat.ephemeral_owner == session.id
                say("a connection breaks and is opened again in time: the session goes on")
            async with opened(gate.address, session_timeout_ms=SHORT_MS) as behind:
                await show_expiry(await behind.open_session(), witness, gate)
        other = await store.open_session()
        await other.create("/broker", ephemeral=True)
        await other.close()
        assert await witness.exists("/broker") is None
        say("a client that closes its session does not wait: its znodes are gone at once")


async def show_expiry(session: Session, witness: Session, gate: TcpGate) -> None:
    begun = time.monotonic()
    names = ("/broker", "/claim")
    await session.multi([Create(path=name, ephemeral=True) for name in names])
    gate.shut()
    gone = asyncio.Event()
    if await witness.exists("/broker", lambda event: gone.set()) is not None:
        await gone.wait()
    assert await witness.exists("/claim") is None
    seconds = time.monotonic() - begun
    say(
        f"another stays cut off: after {seconds:.1f} s its session of {SHORT_MS / 1000:g} s is over"
    )
    say("  and both of its ephemeral znodes are gone, in one transaction")


# -- Elections: a race, or a queue; and a leader of the past changes nothing -----------------------

LEADER, EPOCH, QUEUE = "/controller", "/controller_epoch", "/queue"


async def show_elections(ensemble: ZooKeeperEnsemble) -> None:
    async with opened(ensemble.connect) as store:
        woken_by_race = await elect_twice(store, "race", race)
        woken_by_queue = await elect_twice(store, "queue", queue)
        assert (woken_by_race, woken_by_queue) == (CANDIDATES - 1, 1)


async def elect_twice(
    store: ZooKeeperMetadataStore, name: str, recipe: "Callable[[Session, str], Election]"
) -> int:
    """Returns how many candidates the end of the first leader wakes."""
    sessions = [CountingSession(await store.open_session()) for _ in range(CANDIDATES)]
    won: asyncio.Queue[tuple[CountingSession, ElectionResult]] = asyncio.Queue()

    async def campaign(number: int, session: CountingSession) -> None:
        result = await recipe(cast("Session", session), f"candidate {number}").campaign()
        await won.put((session, result))

    tasks = [asyncio.create_task(campaign(*item)) for item in enumerate(sessions)]
    old, elected = await won.get()
    others = [session for session in sessions if session is not old]
    for session in others:
        await session.waits.wait()
        session.has_woken = False
    assert won.empty()
    say(f"{name}: {CANDIDATES} candidates, one is elected, with epoch {elected.epoch}")
    deposer = await store.open_session()  # as if the leader's session had ended, unnoticed by it
    await deposer.delete(await find_claim(deposer, elected))
    new, successor = await won.get()
    for session in others:  # events come before what a session reads
        await session.sync()
    woken = sum(session.has_woken for session in others)
    say(f"  its znode goes: of the others {woken} wake, one is elected, epoch {successor.epoch}")
    assert won.empty()
    assert successor.epoch == elected.epoch + 1
    await show_fencing(old, elected, new, successor)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for session in [deposer, *sessions]:
        await session.close()
    return woken


async def find_claim(session: Session, elected: ElectionResult) -> str:
    """The znode that the leader is elected by: its own, or its place in the queue."""
    if elected.node_path == LEADER:
        return LEADER
    entries = await session.children(QUEUE)
    return f"{QUEUE}/{min(entries, key=lambda entry: entry[-10:])}"  # the sequence number


async def show_fencing(
    old: "CountingSession",
    elected: ElectionResult,
    new: "CountingSession",
    successor: ElectionResult,
) -> None:
    """The old leader does not know that it is deposed. Its session is alive, and it writes."""
    if await new.exists("/state") is None:
        await new.create("/state")
    await new.multi(successor.fence([SetData(path="/state", data=b"of the new leader")]))
    try:
        await old.multi(elected.fence([SetData(path="/state", data=b"of the old leader")]))
    except MultiFailed as failed:
        if not isinstance(failed.error, BadVersion):
            raise
        say(f"  the old one still writes, with epoch {elected.epoch}: refused, all or nothing")
    else:
        raise AssertionError("a deposed leader has written")
    assert (await new.get("/state")).data == b"of the new leader"
    await old.set("/state", b"of the old leader")
    assert (await new.get("/state")).data == b"of the old leader"
    say("  without the check of the epoch ZooKeeper takes its write: it does not know who leads")


def race(session: Session, name: str) -> Election:
    """The candidate that creates the znode leads; the others watch it."""
    return RaceElection(
        session, Candidate(data=name.encode()), leader_path=LEADER, epoch_path=EPOCH
    )


def queue(session: Session, name: str) -> Election:
    """Ephemeral sequential znodes: the first leads, each other one watches the one before it."""
    return QueueElection(
        session,
        Candidate(data=name.encode()),
        queue_path=QUEUE,
        leader_path=f"{LEADER}_in_turn",
        epoch_path=f"{EPOCH}_in_turn",
    )


class CountingSession:
    """A session that knows whether it has set a watch on a znode, and whether an event came."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.waits = asyncio.Event()
        self.has_woken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def exists(self, path: str, watch: Watch | None = None) -> Any:
        if watch is None:
            return await self._session.exists(path)

        def on_event(event: WatchEvent) -> None:
            if event.kind is not EventKind.SESSION_ENDED:
                self.has_woken = True
                self.waits.clear()
            watch(event)

        stat = await self._session.exists(path, on_event)
        if stat is not None:
            self.waits.set()
        return stat


# -- Helpers ---------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(
    connect: str, session_timeout_ms: int = LONG_MS
) -> AsyncIterator[ZooKeeperMetadataStore]:
    config = ZooKeeperConfig.parse(connect, session_timeout_ms=session_timeout_ms)
    store = await ZooKeeperMetadataStore.open(config)
    try:
        yield store
    finally:
        await store.close()


def say(text: str) -> None:
    print(f"  {text}", flush=True)


STORIES: dict[str, Callable[[ZooKeeperEnsemble], Any]] = {
    "broadcast": show_broadcast,
    "order": show_order,
    "watches": show_watches,
    "sessions": show_sessions,
    "elections": show_elections,
}

if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(STORIES)
    if unknown:
        sys.exit(f"no story {', '.join(sorted(unknown))}: {', '.join(STORIES)}")
    main(sys.argv[1:] or list(STORIES))
