"""The guarantees of every metadata store, tested through the interface alone."""

import asyncio

import pytest
from tests.unit.metadata_store.backends import Backend, RecordingWatch, on_every_backend

from penstock.metadata_store.errors import (
    BadVersion,
    DataTooLarge,
    InvalidPath,
    MetadataStoreError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RolledBack,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    MAX_REQUEST_BYTES,
    NO_SESSION,
    OPERATION_OVERHEAD_BYTES,
    CheckVersion,
    Create,
    Delete,
    EventKind,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)

BAD_PATHS = ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/\0", "/a\x1f", "/\ud800"]


# Znodes and versions.


@on_every_backend
async def test_a_created_znode_is_read_back_with_its_stat(backend: Backend) -> None:
    session = await backend.open_session()
    created = await session.create("/a", b"one")
    value = await session.get("/a")
    assert created.path == "/a"
    assert value == (b"one", created.stat)
    assert (value.stat.version, value.stat.cversion, value.stat.num_children) == (0, 0, 0)
    assert value.stat.data_length == 3
    assert value.stat.ephemeral_owner == NO_SESSION
    assert value.stat.czxid == value.stat.mzxid > 0
    assert value.stat.ctime_ms == value.stat.mtime_ms > 0


@on_every_backend
async def test_set_data_increments_the_version_and_keeps_czxid(backend: Backend) -> None:
    session = await backend.open_session()
    created = await session.create("/a", b"one")
    first = await session.set("/a", b"two", version=0)
    second = await session.set("/a", b"three")
    assert (first.version, second.version) == (1, 2)
    assert created.stat.czxid == first.czxid == second.czxid
    assert created.stat.mzxid < first.mzxid < second.mzxid
    assert await session.get("/a") == (b"three", second)


@on_every_backend
async def test_a_wrong_version_changes_nothing(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/a", b"one")
    with pytest.raises(BadVersion):
        await session.set("/a", b"two", version=1)
    with pytest.raises(BadVersion):
        await session.delete("/a", version=1)
    assert (await session.get("/a")).data == b"one"
    await session.delete("/a", version=0)
    assert await session.exists("/a") is None


@on_every_backend
async def test_a_missing_znode_raises_no_node(backend: Backend) -> None:
    session = await backend.open_session()
    for request in (
        session.get("/a"),
        session.set("/a", b""),
        session.delete("/a"),
        session.children("/a"),
        session.create("/a/b"),
    ):
        with pytest.raises(NoNode):
            await request
    assert await session.exists("/a") is None


@on_every_backend
async def test_a_path_is_created_once(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/a", b"one")
    for path in ("/a", "/"):
        with pytest.raises(NodeExists):
            await session.create(path, b"two")
    assert (await session.get("/a")).data == b"one"


@on_every_backend
async def test_a_znode_with_children_cannot_be_deleted(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/a")
    await session.create("/a/b")
    with pytest.raises(NotEmpty):
        await session.delete("/a")
    await session.delete("/a/b")
    await session.delete("/a")
    assert await session.exists("/a") is None


@on_every_backend
async def test_cversion_counts_created_and_deleted_children(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/a")
    for name in ("c", "b", "d"):
        await session.create(f"/a/{name}")
    await session.delete("/a/c")
    stat = await session.exists("/a")
    assert stat is not None
    assert (stat.num_children, stat.cversion, stat.version) == (2, 4, 0)
    assert stat.pzxid > stat.mzxid == stat.czxid
    assert await session.children("/a") == ("b", "d")


@on_every_backend
async def test_invalid_paths_are_refused(backend: Backend) -> None:
    session = await backend.open_session()
    for path in BAD_PATHS:
        with pytest.raises(InvalidPath):
            await session.create(path)
        with pytest.raises(InvalidPath):
            await session.exists(path)
        with pytest.raises(InvalidPath):
            await session.multi([Create(path="/good"), Delete(path=path)])
    with pytest.raises(InvalidPath):
        await session.delete("/")
    assert await session.exists("/good") is None


@on_every_backend
async def test_data_above_the_limit_is_refused(backend: Backend) -> None:
    session = await backend.open_session()
    largest = bytes(MAX_REQUEST_BYTES - OPERATION_OVERHEAD_BYTES - len("/a"))
    await session.create("/a", largest)
    assert (await session.get("/a")).data == largest
    with pytest.raises(DataTooLarge):
        await session.set("/a", largest + b"x")
    with pytest.raises(DataTooLarge):
        await session.multi([SetData(path="/a", data=largest), CheckVersion(path="/a")])
    assert (await session.get("/a")).stat.version == 0


# Sequential znodes.


@on_every_backend
async def test_sequential_znodes_get_ten_digits_that_never_repeat(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/q")
    first = await session.create("/q/n-", sequential=True)
    await session.create("/q/other")
    await session.delete(first.path)
    second = await session.create("/q/n-", sequential=True)
    bare = await session.create("/q/", sequential=True)
    assert first.path == "/q/n-0000000000"
    assert [second.path, bare.path] == ["/q/n-0000000002", "/q/0000000003"]


# Sessions and ephemerals.


@on_every_backend
async def test_ephemerals_end_with_their_session(backend: Backend) -> None:
    session, other = await backend.open_session(), await backend.open_session()
    created = await session.create("/e", b"mine", ephemeral=True)
    await session.create("/p")
    assert created.stat.ephemeral_owner == session.id != other.id
    await session.close()
    await other.sync()
    assert await other.exists("/e") is None
    assert await other.exists("/p") is not None


@on_every_backend
async def test_an_expired_session_loses_its_ephemerals_and_refuses_requests(
    backend: Backend,
) -> None:
    session, other = await backend.open_session(), await backend.open_session()
    await session.create("/e", ephemeral=True)
    states: list[SessionState] = []
    session.listen(states.append)
    await backend.expire(session)
    for request in (
        session.get("/"),
        session.create("/x"),
        session.multi([Create(path="/x")]),
        session.sync(),
    ):
        with pytest.raises(SessionExpired):
            await request
    await session.close()
    await other.sync()
    assert not {"e", "x"} & set(await other.children("/"))
    assert session.state is SessionState.ENDED
    assert states[-1] is SessionState.ENDED


@on_every_backend
async def test_ephemerals_have_no_children(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await session.create("/e/child")
    stat = await session.exists("/e")
    assert stat is not None
    assert stat.num_children == 0


@on_every_backend
async def test_another_session_may_delete_an_ephemeral(backend: Backend) -> None:
    session, other = await backend.open_session(), await backend.open_session()
    await session.create("/e", ephemeral=True)
    await other.delete("/e")
    await other.create("/e", b"other")
    await session.close()
    await other.sync()
    assert (await other.get("/e")).data == b"other"


# Transactions.


@on_every_backend
async def test_multi_is_atomic(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/a", b"one")
    results = await session.multi(
        [
            CheckVersion(path="/a", version=0),
            SetData(path="/a", data=b"two", version=0),
            Create(path="/a/b"),
            Create(path="/a/n", sequential=True),
            Delete(path="/a/b"),
        ]
    )
    stat = results[1]
    assert isinstance(stat, Stat)
    assert (results[0], *results[2:]) == (None, "/a/b", "/a/n0000000001", None)
    assert stat.version == 1
    number = await session.exists("/a/n0000000001")
    assert number is not None
    assert number.czxid == stat.mzxid


@on_every_backend
async def test_multi_with_one_failure_changes_nothing(backend: Backend) -> None:
    session = await backend.open_session()
    before = (await session.create("/a", b"one")).stat
    with pytest.raises(MultiFailed) as failed:
        await session.multi(
            [
                SetData(path="/a", data=b"two"),
                Create(path="/a/b"),
                CheckVersion(path="/a", version=7),
                Delete(path="/a/b"),
            ]
        )
    kinds = [type(error) for error in failed.value.errors]
    assert kinds == [RolledBack, RolledBack, BadVersion, RolledBack]
    assert failed.value.failed_index == 2
    assert await session.get("/a") == (b"one", before)
    assert await session.exists("/a/b") is None


@on_every_backend
async def test_every_failure_rolls_multi_back(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/full")
    await session.create("/full/child")
    await session.create("/e", ephemeral=True)
    cases: list[tuple[Create | SetData | Delete | CheckVersion, type[MetadataStoreError]]] = [
        (Create(path="/full"), NodeExists),
        (Create(path="/none/x"), NoNode),
        (Create(path="/e/x"), NoChildrenForEphemerals),
        (Delete(path="/full"), NotEmpty),
        (Delete(path="/none"), NoNode),
        (SetData(path="/none", data=b""), NoNode),
        (CheckVersion(path="/none"), NoNode),
        (CheckVersion(path="/full", version=1), BadVersion),
    ]
    for operation, expected in cases:
        with pytest.raises(MultiFailed) as failed:
            await session.multi([Create(path="/new", ephemeral=True), operation])
        assert isinstance(failed.value.error, expected), operation
        assert await session.exists("/new") is None


@on_every_backend
async def test_a_znode_can_be_replaced_within_a_multi(backend: Backend) -> None:
    old, new = await backend.open_session(), await backend.open_session()
    before = (await old.create("/leader", b"old", ephemeral=True)).stat
    await new.multi([Delete(path="/leader"), Create(path="/leader", data=b"new", ephemeral=True)])
    value = await new.get("/leader")
    assert (value.data, value.stat.ephemeral_owner) == (b"new", new.id)
    assert value.stat.czxid > before.czxid
    await old.close()
    await new.sync()
    assert await new.exists("/leader") == value.stat


# Order.


@on_every_backend
async def test_zxids_order_all_writes_of_all_sessions(backend: Backend) -> None:
    sessions = [await backend.open_session() for _ in range(3)]
    zxids = [(await sessions[turn % 3].create(f"/n{turn}")).stat.czxid for turn in range(9)]
    assert zxids == sorted(set(zxids))


@on_every_backend
async def test_unawaited_requests_of_a_session_take_effect_in_order(
    backend: Backend,
) -> None:
    session = await backend.open_session()
    created, first, stat, second, deleted, last = await asyncio.gather(
        session.create("/a", b"one"),
        session.get("/a"),
        session.set("/a", b"two", version=0),
        session.get("/a"),
        session.delete("/a", version=1),
        session.exists("/a"),
    )
    assert first == (b"one", created.stat)
    assert second == (b"two", stat)
    assert deleted is last is None


@on_every_backend
async def test_sync_shows_writes_that_completed_in_other_sessions(backend: Backend) -> None:
    writer, reader = await backend.open_session(), await backend.open_session()
    await writer.create("/a", b"0")
    for turn in range(10):
        await writer.set("/a", b"%d" % turn)
        await reader.sync()
        assert (await reader.get("/a")).data == b"%d" % turn


# Watches.


@on_every_backend
async def test_a_watch_fires_once_for_created_changed_and_deleted(backend: Backend) -> None:
    session = await backend.open_session()
    for kind in (EventKind.CREATED, EventKind.CHANGED, EventKind.DELETED):
        witness = RecordingWatch()
        await session.exists("/a", witness)
        if kind is EventKind.CREATED:
            await session.create("/a")
        elif kind is EventKind.CHANGED:
            await session.set("/a", b"x")
            await session.set("/a", b"y")
        else:
            await session.delete("/a")
            await session.create("/a")
            await session.delete("/a")
        await session.sync()
        assert witness.events == [WatchEvent(kind, "/a")]


@on_every_backend
async def test_a_child_watch_fires_for_children_and_for_the_znode_s_deletion(
    backend: Backend,
) -> None:
    session = await backend.open_session()
    await session.create("/a")
    added, removed, gone = RecordingWatch(), RecordingWatch(), RecordingWatch()
    await session.children("/a", added)
    await session.set("/a", b"no child")
    await session.create("/a/b")
    await session.children("/a", removed)
    await session.set("/a/b", b"no child either")
    await session.delete("/a/b")
    await session.children("/a", gone)
    await session.delete("/a")
    await session.sync()
    assert added.events == removed.events == [WatchEvent(EventKind.CHILD, "/a")]
    assert gone.events == [WatchEvent(EventKind.DELETED, "/a")]


@on_every_backend
async def test_only_exists_watches_a_missing_znode(backend: Backend) -> None:
    session = await backend.open_session()
    witness = RecordingWatch()
    with pytest.raises(NoNode):
        await session.get("/a", witness)
    with pytest.raises(NoNode):
        await session.children("/a", witness)
    await session.create("/a")
    await session.create("/a/b")
    await session.sync()
    assert witness.events == []


@on_every_backend
async def test_a_watch_armed_twice_is_called_once(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/a")
    witness = RecordingWatch()
    await session.get("/a", witness)
    await session.exists("/a", witness)
    await session.children("/a", witness)
    await session.delete("/a")
    await session.sync()
    assert witness.events == [WatchEvent(EventKind.DELETED, "/a")]


@on_every_backend
async def test_a_failed_multi_fires_no_watch(backend: Backend) -> None:
    session = await backend.open_session()
    witness = RecordingWatch()
    await session.exists("/a", witness)
    with pytest.raises(MultiFailed):
        await session.multi([Create(path="/a"), CheckVersion(path="/none")])
    await session.sync()
    assert witness.events == []


@on_every_backend
async def test_other_sessions_see_ephemerals_deleted(backend: Backend) -> None:
    session, other = await backend.open_session(), await backend.open_session()
    await session.create("/ids")
    await session.create("/ids/1", ephemeral=True)
    node, folder = RecordingWatch(), RecordingWatch()
    await other.sync()
    await other.get("/ids/1", node)
    await other.children("/ids", folder)
    await backend.expire(session)
    await other.sync()
    assert node.events == [WatchEvent(EventKind.DELETED, "/ids/1")]
    assert folder.events == [WatchEvent(EventKind.CHILD, "/ids")]


@on_every_backend
async def test_watches_are_called_when_their_session_ends(backend: Backend) -> None:
    session = await backend.open_session()
    await session.create("/e", ephemeral=True)
    witness = RecordingWatch()
    await session.exists("/e", witness)
    await session.children("/", witness)
    await backend.expire(session)
    assert [event.kind for event in witness.events] == [EventKind.SESSION_ENDED]


@on_every_backend
async def test_a_watch_is_called_before_the_change_can_be_read(backend: Backend) -> None:
    writer, reader = await backend.open_session(), await backend.open_session()
    await writer.create("/a", b"0")
    await reader.sync()
    for turn in range(1, 30):
        witness = RecordingWatch()
        before = await reader.get("/a", witness)
        write = asyncio.create_task(writer.set("/a", b"%d" % turn))
        while (await reader.get("/a")).data == before.data:
            await asyncio.wait([write], timeout=0)
        assert witness.events == [WatchEvent(EventKind.CHANGED, "/a")]
        await write


@on_every_backend
async def test_re_arming_by_the_read_misses_no_last_change(backend: Backend) -> None:
    """Reader and writer race; however events merge, the reader ends with the last value."""
    writer, reader = await backend.open_session(), await backend.open_session()
    await writer.create("/a", b"0")
    await reader.sync()
    changes = 50

    async def follow() -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] < changes:
            changed = asyncio.Event()
            value = await reader.get("/a", lambda event, changed=changed: changed.set())  # type: ignore[misc]
            seen.append(int(value.data))
            if seen[-1] < changes:
                await changed.wait()
        return seen

    async def write() -> None:
        for turn in range(1, changes + 1):
            await writer.set("/a", b"%d" % turn)

    seen, _ = await asyncio.gather(follow(), write())
    assert seen == sorted(set(seen))
    assert seen[-1] == changes


@on_every_backend
async def test_a_watch_fires_after_the_response_that_armed_it(backend: Backend) -> None:
    session = await backend.open_session()
    order: list[str] = []

    async def read() -> None:
        value = await session.get("/a", lambda event: order.append("event"))
        order.append(value.data.decode())

    await asyncio.gather(session.create("/a", b"one"), read(), session.set("/a", b"two"))
    await session.sync()
    assert order == ["one", "event"]
