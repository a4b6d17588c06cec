"""Sessions on a real ZooKeeper: lost connections, expiry, stalls, and their watches."""

import asyncio
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import uuid4

import pytest
from tests.unit.metadata_store.backends import (
    RecordingWatch,
    States,
    expire,
    opened,
    read_frame,
    run,
)
from tests.unit.metadata_store.proxy import Proxy, serving

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.errors import (
    ConnectionLoss,
    DataTooLarge,
    NodeExists,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    MAX_REQUEST_BYTES,
    EventKind,
    SessionState,
    WatchEvent,
)
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore

pytestmark = pytest.mark.xdist_group("zookeeper")

SHORT_MS = 4_000  # for sessions that expire by timeout


def through_proxy(
    scenario: Callable[[Proxy, ZooKeeperMetadataStore, ZooKeeperMetadataStore], Awaitable[None]],
    connect: str,
    *,
    session_timeout_ms: int = 20_000,
) -> None:
    """Open a store through the proxy, and another one that sees the same znodes directly."""

    async def run_through_proxy() -> None:
        async with Proxy(connect) as proxy, opened(connect) as direct:
            chroot = direct._config.chroot
            config = ZooKeeperConfig.parse(
                proxy.address + chroot, session_timeout_ms=session_timeout_ms
            )
            store = await ZooKeeperMetadataStore.open(config)
            try:
                await scenario(proxy, store, direct)
            finally:
                await store.close()

    run(run_through_proxy())


# Lost connections.


def test_a_lost_connection_suspends_the_session_until_it_reconnects(zookeeper_connect: str) -> None:
    async def scenario(
        proxy: Proxy, store: ZooKeeperMetadataStore, direct: ZooKeeperMetadataStore
    ) -> None:
        session, other = await store.open_session(), await direct.open_session()
        await session.create("/e", ephemeral=True)
        states, number = States(session), session.id
        proxy.cut()
        await states.wait_for(SessionState.SUSPENDED)
        with pytest.raises(ConnectionLoss, match="was not accepted"):
            await session.create("/x")
        assert await other.exists("/e") is not None
        proxy.mend()
        await states.wait_for(SessionState.CONNECTED)
        assert states.seen == [SessionState.SUSPENDED, SessionState.CONNECTED]
        stat = await session.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == session.id == number
        assert await session.exists("/x") is None

    through_proxy(scenario, zookeeper_connect)


def test_watches_survive_a_lost_connection_and_get_missed_events(
    zookeeper_connect: str,
) -> None:
    async def scenario(
        proxy: Proxy, store: ZooKeeperMetadataStore, direct: ZooKeeperMetadataStore
    ) -> None:
        session, other = await store.open_session(), await direct.open_session()
        for path in ("/changed", "/gone", "/parent", "/left", "/left-parent"):
            await session.create(path)
        names = ("changed", "gone", "parent", "born", "left", "left-parent", "unborn")
        heard = {name: RecordingWatch() for name in names}
        await session.get("/changed", heard["changed"])
        await session.get("/gone", heard["gone"])
        await session.children("/parent", heard["parent"])
        assert await session.exists("/born", heard["born"]) is None
        await session.get("/left", heard["left"])
        await session.children("/left-parent", heard["left-parent"])
        assert await session.exists("/unborn", heard["unborn"]) is None
        states = States(session)
        proxy.cut()
        await states.wait_for(SessionState.SUSPENDED)
        await other.set("/changed", b"new")
        await other.delete("/gone")
        await other.create("/parent/child")
        await other.create("/born")
        assert not any(watch.events for watch in heard.values())
        proxy.mend()
        await states.wait_for(SessionState.CONNECTED)
        # When a read first shows a change, its watch has been called already.
        assert (await session.get("/changed")).data == b"new"
        assert heard["changed"].events == [WatchEvent(EventKind.CHANGED, "/changed")]
        assert heard["gone"].events == [WatchEvent(EventKind.DELETED, "/gone")]
        assert heard["parent"].events == [WatchEvent(EventKind.CHILD, "/parent")]
        assert heard["born"].events == [WatchEvent(EventKind.CREATED, "/born")]
        # Watches without a change are still armed.
        assert not heard["left"].events + heard["left-parent"].events + heard["unborn"].events
        await other.set("/left", b"")
        await other.create("/left-parent/child")
        await other.create("/unborn")
        await session.sync()
        assert heard["left"].events == [WatchEvent(EventKind.CHANGED, "/left")]
        assert heard["left-parent"].events == [WatchEvent(EventKind.CHILD, "/left-parent")]
        assert heard["unborn"].events == [WatchEvent(EventKind.CREATED, "/unborn")]

    through_proxy(scenario, zookeeper_connect)


def test_re_armed_watches_miss_no_last_change_over_many_lost_connections(
    zookeeper_connect: str,
) -> None:
    changes = 40

    async def scenario(
        proxy: Proxy, store: ZooKeeperMetadataStore, direct: ZooKeeperMetadataStore
    ) -> None:
        session, other = await store.open_session(), await direct.open_session()
        await other.create("/a", b"0")
        await session.sync()

        async def follow() -> list[int]:
            seen: list[int] = [-1]
            while seen[-1] < changes:
                changed = asyncio.Event()
                try:
                    value = await session.get("/a", lambda _, changed=changed: changed.set())  # type: ignore[misc]
                except ConnectionLoss:
                    await wait_connected(session)
                    continue
                seen.append(int(value.data))
                if seen[-1] < changes:
                    await changed.wait()
            return seen

        async def write() -> None:
            for turn in range(1, changes + 1):
                await other.set("/a", b"%d" % turn)
                if turn % 10 == 5:
                    await proxy.break_once()

        seen, _ = await asyncio.gather(follow(), write())
        assert seen == sorted(set(seen))
        assert seen[-1] == changes
        assert session.statistics().connections == 5

    through_proxy(scenario, zookeeper_connect)


async def wait_connected(session: ZooKeeperSession) -> None:
    states = States(session)
    if session.state is not SessionState.CONNECTED:
        await states.wait_for(SessionState.CONNECTED)


def test_watches_not_re_armed_by_one_connection_are_re_armed_by_the_next() -> None:
    """Otherwise they would never fire."""
    set_watches, no_node = 101, -101
    codes = [-2, -2, 0]  # errors of the responses to SetWatches
    connections: list[asyncio.StreamWriter] = []
    done = asyncio.Event()

    def answer(xid: int, kind: int) -> bytes:
        code = codes.pop(0) if kind == set_watches else no_node
        if not codes:
            done.set()
        return frame(struct.pack("!iqi", xid, 5, code))

    async def scenario() -> None:
        async with serving(scripted_server(answer, connections)) as address:
            store = await ZooKeeperMetadataStore.open(ZooKeeperConfig.parse(address))
            session = await store.open_session()
            assert await session.exists("/a", RecordingWatch()) is None
            connections[0].transport.abort()
            await done.wait()
            assert len(connections) == 4
            for writer in connections:
                writer.transport.abort()
            await store.close()

    run(scenario())


def test_a_response_resumes_its_caller_before_a_later_watch_event() -> None:
    """Both arrive in one packet with the next response, as from a busy server."""
    connections: list[asyncio.StreamWriter] = []
    value = struct.pack("!i3s", 3, b"one") + bytes(68)
    changed = struct.pack("!iqi", -1, -1, 0) + struct.pack("!iii2s", 3, 3, 2, b"/a")
    second = struct.pack("!i3s", 3, b"two") + bytes(68)

    def answer(xid: int, kind: int) -> bytes:
        if xid == 1:
            return b""  # sent on the next connection
        header = struct.pack("!iqi", 1, 5, 0)
        return frame(header + value) + frame(changed) + frame(struct.pack("!iqi", 2, 6, 0) + second)

    async def scenario() -> None:
        async with serving(scripted_server(answer, connections)) as address:
            store = await ZooKeeperMetadataStore.open(ZooKeeperConfig.parse(address))
            session = await store.open_session()
            order: list[str] = []

            async def read(watched: bool) -> None:
                watch = (lambda event: order.append(event.kind)) if watched else None
                order.append((await session.get("/a", watch)).data.decode())

            await asyncio.gather(read(True), read(False))
            assert order == ["one", "changed", "two"]
            for writer in connections:
                writer.transport.abort()
            await store.close()

    run(scenario())


def scripted_server(
    answer: Callable[[int, int], bytes], connections: list[asyncio.StreamWriter]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Run a server that accepts every session and responds to each request as scripted."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await read_frame(reader)
        writer.write(frame(struct.pack("!iiqi", 0, 18_000, 0x77, 16) + bytes(16) + b"\0"))
        while True:
            xid, kind = struct.unpack_from("!ii", await read_frame(reader))
            writer.write(answer(xid, kind))

    return handle


def frame(payload: bytes) -> bytes:
    return struct.pack("!i", len(payload)) + payload


def test_a_lost_response_raises_connection_loss_though_the_write_is_applied(
    zookeeper_connect: str,
) -> None:
    async def scenario(
        proxy: Proxy, store: ZooKeeperMetadataStore, direct: ZooKeeperMetadataStore
    ) -> None:
        session, other = await store.open_session(), await direct.open_session()
        made = asyncio.Event()
        assert await other.exists("/a", lambda event: made.set()) is None
        proxy.block_responses()
        create = asyncio.create_task(session.create("/a"))
        await made.wait()
        proxy.cut()
        with pytest.raises(ConnectionLoss, match="may be done or not"):
            await create
        proxy.mend()
        await wait_connected(session)
        with pytest.raises(NodeExists):
            await session.create("/a")

    through_proxy(scenario, zookeeper_connect)


def test_a_silent_server_is_dropped_before_the_session_expires(
    zookeeper_connect: str,
) -> None:
    async def scenario(
        proxy: Proxy, store: ZooKeeperMetadataStore, direct: ZooKeeperMetadataStore
    ) -> None:
        session = await store.open_session()
        states, number = States(session), session.id
        began = time.monotonic()
        proxy.block_responses()  # our pings still keep the session alive
        await states.wait_for(SessionState.SUSPENDED)
        assert time.monotonic() - began > 0.9  # not at the first missing response
        proxy.mend()
        await states.wait_for(SessionState.CONNECTED)
        assert session.id == number
        await session.sync()

    through_proxy(scenario, zookeeper_connect, session_timeout_ms=6_000)


# Expiry.


def test_a_partitioned_session_expires_and_is_notified_on_reconnect(
    zookeeper_connect: str,
) -> None:
    async def scenario(
        proxy: Proxy, store: ZooKeeperMetadataStore, direct: ZooKeeperMetadataStore
    ) -> None:
        session, other = await store.open_session(), await direct.open_session()
        await session.create("/e", ephemeral=True)
        states, witness, gone = States(session), RecordingWatch(), asyncio.Event()
        await session.exists("/e", witness)
        await other.exists("/e", lambda event: gone.set())
        proxy.cut()
        await gone.wait()
        assert SessionState.ENDED not in states.seen
        proxy.mend()
        await states.wait_for(SessionState.ENDED)
        await session.ended.wait()
        assert [event.kind for event in witness.events] == [EventKind.SESSION_ENDED]
        with pytest.raises(SessionExpired):
            await session.get("/e")
        fresh = await store.open_session()
        assert fresh.id != session.id
        await fresh.create("/e", ephemeral=True)

    through_proxy(scenario, zookeeper_connect, session_timeout_ms=SHORT_MS)


def test_expiry_under_load_completes_every_request(zookeeper_connect: str) -> None:
    async def scenario() -> None:
        async with opened(zookeeper_connect) as store:
            session = await store.open_session()
            requests = [asyncio.create_task(session.create(f"/n{n}")) for n in range(300)]
            await requests[0]
            await expire(session, zookeeper_connect)
            answers = await asyncio.gather(*requests, return_exceptions=True)
            kinds = {type(answer).__name__ for answer in answers}
            assert kinds <= {"Created", "ConnectionLoss", "SessionExpired"}

    run(scenario())


def test_a_stalled_loop_loses_its_session(zookeeper_connect: str) -> None:
    """No other thread sends heartbeats, so the cluster and its clients see it as dead."""
    seen_gone: list[float] = []

    def watch_from_elsewhere(chroot: str, ready: threading.Event) -> None:
        async def look() -> None:
            config = ZooKeeperConfig.parse(zookeeper_connect + chroot)
            store = await ZooKeeperMetadataStore.open(config)
            other, gone = await store.open_session(), asyncio.Event()
            assert await other.exists("/e", lambda event: gone.set()) is not None
            ready.set()
            async with asyncio.timeout(180):
                await gone.wait()
            seen_gone.append(time.monotonic())
            await store.close()

        asyncio.run(look())

    async def scenario() -> None:
        async with opened(zookeeper_connect, session_timeout_ms=SHORT_MS) as store:
            session = await store.open_session()
            await session.create("/e", ephemeral=True)
            ready = threading.Event()
            thread = threading.Thread(
                target=watch_from_elsewhere, args=(store._config.chroot, ready)
            )
            thread.start()
            await asyncio.to_thread(ready.wait)
            thread.join()  # stalls the loop, whose thread this is
            resumed = time.monotonic()
            assert seen_gone
            assert seen_gone[0] < resumed
            await session.ended.wait()
            assert session.state is SessionState.ENDED
            with pytest.raises(SessionExpired):
                await session.create("/e", ephemeral=True)

    run(scenario())


def test_a_short_stall_keeps_the_session(zookeeper_connect: str) -> None:
    async def scenario() -> None:
        async with opened(zookeeper_connect, session_timeout_ms=9_000) as store:
            session = await store.open_session()
            states = States(session)
            time.sleep(3.2)  # noqa: ASYNC251  # the stall itself: longer than a heartbeat interval
            await session.sync()
            assert states.seen == []

    run(scenario())


# Connect strings.


def test_the_chroot_is_created_and_is_the_root(zookeeper_connect: str) -> None:
    async def scenario() -> None:
        async with opened(zookeeper_connect) as store, opened(zookeeper_connect) as another:
            deeper = ZooKeeperConfig.parse(f"{zookeeper_connect}{store._config.chroot}/one/two")
            inner = await ZooKeeperMetadataStore.open(deeper)
            inside, outside = await inner.open_session(), await store.open_session()
            other = await another.open_session()
            first = await inside.create("/", sequential=True)
            await inside.create("/a", b"x")
            await outside.sync()
            assert first.path == "/0000000000"
            assert await outside.children("/one/two") == ("0000000000", "a")
            assert await other.children("/") == ()
            witness = RecordingWatch()
            await inside.children("/", witness)
            await inside.delete("/a")
            await inside.sync()
            assert witness.events == [WatchEvent(EventKind.CHILD, "/")]
            await inner.close()

    run(scenario())


def test_the_chroot_counts_toward_the_request_limit(
    zookeeper_connect: str,
) -> None:
    async def scenario() -> None:
        config = ZooKeeperConfig.parse(f"{zookeeper_connect}/{'x' * 500}")
        store = await ZooKeeperMetadataStore.open(config)
        session = await store.open_session()
        with pytest.raises(DataTooLarge):
            await session.create("/a", bytes(MAX_REQUEST_BYTES - 300))
        await session.sync()  # on the same connection
        assert session.statistics().connections == 1
        await store.close()

    run(scenario())


def test_without_a_server_the_error_names_it_and_the_setting() -> None:
    async def scenario() -> None:
        config = ZooKeeperConfig.parse("127.0.0.1:1", session_timeout_ms=300)
        with pytest.raises(ConnectionLoss) as refused:
            await (await ZooKeeperMetadataStore.open(config)).open_session()
        message = str(refused.value)
        assert "no ZooKeeper answered within 300 ms at 127.0.0.1:1" in message
        assert "correct zookeeper.connect" in message

    run(scenario())


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4abcd", b""])
def test_a_server_that_is_not_zookeeper_is_refused(answer: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        await writer.drain()

    async def scenario() -> None:
        async with serving(handle) as address:
            config = ZooKeeperConfig.parse(address, session_timeout_ms=500)
            store = await ZooKeeperMetadataStore.open(config)
            with pytest.raises(ConnectionLoss, match="no ZooKeeper answered"):
                await store.open_session()

    run(scenario())


# Closing.


def test_a_failing_watch_stops_its_session(zookeeper_connect: str) -> None:
    async def scenario() -> None:
        config = ZooKeeperConfig.parse(zookeeper_connect)
        store = await ZooKeeperMetadataStore.open(config)
        session = await store.open_session()

        def fail(event: WatchEvent) -> None:
            raise ZeroDivisionError

        path = f"/{uuid4().hex}"
        assert await session.exists(path, fail) is None
        with suppress(ConnectionLoss):  # the event may arrive before the response
            await session.create(path, ephemeral=True)
        with pytest.raises(ZeroDivisionError):
            await store.wait_end()
        with pytest.raises(ConnectionLoss, match="ZeroDivisionError"):
            await session.sync()
        with pytest.raises(ZeroDivisionError):
            await store.close()

    run(scenario())


def test_closing_ends_sessions_at_the_server_at_once(zookeeper_connect: str) -> None:
    async def scenario() -> None:
        async with opened(zookeeper_connect, session_timeout_ms=60_000) as store:
            session, other = await store.open_session(), await store.open_session()
            await session.create("/e", ephemeral=True)
            gone = asyncio.Event()
            await other.sync()
            assert await other.exists("/e", lambda event: gone.set()) is not None
            await asyncio.gather(session.close(), session.close())
            async with asyncio.timeout(180):
                await gone.wait()
            await session.close()
            with pytest.raises(SessionExpired):
                await session.get("/")

    run(scenario())
