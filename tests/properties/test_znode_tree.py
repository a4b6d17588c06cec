"""The znode state machine against a model that is a plain dict, over random commands."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.metadata_store.embedded.records import (
    decode_commands,
    decode_image,
    encode_command,
    encode_image,
)
from penstock.metadata_store.embedded.znode_tree import (
    Command,
    EndAllSessions,
    EndSession,
    Failure,
    OpenSession,
    ZnodeChange,
    ZnodeTree,
)
from penstock.metadata_store.errors import (
    BadVersion,
    MetadataStoreError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    ANY_VERSION,
    CheckVersion,
    Create,
    Created,
    Delete,
    EventKind,
    Operation,
    SessionId,
    SetData,
    Stat,
)

EXAMPLES = scaled(test=150, verify=3000, release=20_000)


@dataclass
class Entry:
    data: bytes
    owner: int
    czxid: int
    version: int = 0
    births: int = 0  # number of children ever created
    deaths: int = 0


@dataclass
class Model:
    """Slow and simple: children are found by scanning all paths, a transaction copies
    everything."""

    zxid: int = 0
    sessions: set[int] = field(default_factory=set)
    entries: dict[str, Entry] = field(default_factory=lambda: {"/": Entry(b"", 0, 0)})

    def apply(self, command: Command) -> type[MetadataStoreError] | None:
        self.zxid += 1
        match command:
            case OpenSession():
                self.sessions.add(self.zxid)
            case EndSession(session_id):
                self.sessions.discard(session_id)
                self.remove_orphans()
            case EndAllSessions():
                self.sessions.clear()
                self.remove_orphans()
            case ZnodeChange(session_id, operations):
                return self.change(session_id, operations)
        return None

    def change(
        self, session_id: int, operations: tuple[Operation, ...]
    ) -> type[MetadataStoreError] | None:
        if session_id not in self.sessions:
            return SessionExpired
        copy = {p: Entry(**vars(e)) for p, e in self.entries.items()}
        for operation in operations:
            error = self.do(session_id, operation)
            if error is not None:
                self.entries = copy
                return error
        return None

    def do(self, session_id: int, operation: Operation) -> type[MetadataStoreError] | None:
        if isinstance(operation, Create):
            return self.create(session_id, operation)
        entry = self.entries.get(operation.path)
        if entry is None:
            return NoNode
        if operation.version not in (ANY_VERSION, entry.version):
            return BadVersion
        if isinstance(operation, SetData):
            entry.data, entry.version = operation.data, entry.version + 1
        elif isinstance(operation, Delete):
            if self.children(operation.path):
                return NotEmpty
            self.remove(operation.path)
        return None

    def create(self, session_id: int, operation: Create) -> type[MetadataStoreError] | None:
        parent = self.entries.get(parent_of(operation.path))
        if parent is None:
            return NoNode
        number = f"{parent.births:010d}" if operation.sequential else ""
        if operation.path + number in self.entries:
            return NodeExists
        if parent.owner:
            return NoChildrenForEphemerals
        parent.births += 1
        self.entries[operation.path + number] = Entry(
            operation.data, session_id if operation.ephemeral else 0, self.zxid
        )
        return None

    def remove(self, path: str) -> None:
        del self.entries[path]
        self.entries[parent_of(path)].deaths += 1

    def remove_orphans(self) -> None:
        for path in [p for p, e in self.entries.items() if e.owner not in {0, *self.sessions}]:
            self.remove(path)

    def children(self, path: str) -> list[str]:
        return [p for p in self.entries if p != "/" and parent_of(p) == path]


def parent_of(path: str) -> str:
    head, _, _ = path.rpartition("/")
    return head or "/"


PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/a/0000000001"])
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
DATA = st.binary(max_size=3)
SESSIONS = st.integers(0, 3).map(SessionId)
OPERATIONS = st.one_of(
    st.builds(Create, path=PATHS, data=DATA, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(Create, path=PATHS, data=DATA, ephemeral=st.just(False)),
    st.builds(SetData, path=PATHS | st.just("/"), data=DATA, version=VERSIONS),
    st.builds(Delete, path=PATHS, version=VERSIONS),
    st.builds(CheckVersion, path=PATHS | st.just("/"), version=VERSIONS),
)
CHANGES = st.builds(ZnodeChange, SESSIONS, st.lists(OPERATIONS, min_size=1, max_size=4).map(tuple))
COMMANDS = st.lists(
    st.one_of(
        CHANGES,
        CHANGES,
        CHANGES,
        st.just(OpenSession()),
        st.builds(EndSession, SESSIONS),
        st.just(EndAllSessions()),
    ),
    max_size=40,
).map(lambda commands: [OpenSession(), OpenSession(), *commands])


@given(COMMANDS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_znodes_behave_like_a_dict(commands: list[Command]) -> None:
    tree, model = ZnodeTree(), Model()
    for now_ms, command in enumerate(commands):
        applied = tree.apply(command, now_ms)
        expected_error = model.apply(command)
        outcome = applied.result
        actual_error = type(outcome.error) if isinstance(outcome, Failure) else None
        assert actual_error is expected_error
        assert_equal(tree, model)


@given(COMMANDS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_events_report_every_change_and_failures_none(commands: list[Command]) -> None:
    tree = ZnodeTree()
    for now_ms, command in enumerate(commands):
        before = dict(tree.image().nodes)
        applied = tree.apply(command, now_ms)
        after = tree.image().nodes
        if isinstance(applied.result, Failure):
            assert (before, applied.events) == (after, ())
            continue
        fired = {(event.kind, event.path) for event in applied.events}
        for path in before.keys() - after.keys():
            assert {(EventKind.DELETED, path), (EventKind.CHILD, parent_of(path))} <= fired
        for path in after.keys() - before.keys():
            assert {(EventKind.CREATED, path), (EventKind.CHILD, parent_of(path))} <= fired
        for path in after.keys() & before.keys():
            if after[path].mzxid != before[path].mzxid:
                assert {(EventKind.CHANGED, path), (EventKind.CREATED, path)} & fired
        for _, path in fired:
            assert path in before or path in after or is_passing(command)


@given(COMMANDS, st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_encoded_commands_and_images_rebuild_the_znodes(
    commands: list[Command], data: st.DataObject
) -> None:
    tree = ZnodeTree()
    outcomes = [tree.apply(command, 7) for command in commands]
    cut = data.draw(st.integers(0, len(commands)))
    rebuilt = ZnodeTree()
    for command in commands[:cut]:
        rebuilt.apply(command, 7)
    rebuilt = ZnodeTree(decode_image(encode_image(rebuilt.image())))
    record = b"".join(encode_command(command) for command in commands[cut:])
    for index, command in enumerate(decode_commands(record), cut):
        applied = rebuilt.apply(command, 7)
        assert command == commands[index]
        assert (applied.zxid, applied.events) == (outcomes[index].zxid, outcomes[index].events)
    assert rebuilt.image() == tree.image()


def is_passing(command: Command) -> bool:
    """Only a transaction of several operations can create and delete the same znode."""
    return isinstance(command, ZnodeChange) and len(command.operations) > 1


def assert_equal(tree: ZnodeTree, model: Model) -> None:
    assert tree.zxid == model.zxid
    assert tree.sessions == model.sessions
    assert tree.image().nodes.keys() == model.entries.keys()
    for path, entry in model.entries.items():
        node = tree.get(path)
        children = model.children(path)
        assert node.data == entry.data
        assert node.stat._replace(mzxid=0, pzxid=0, ctime_ms=0, mtime_ms=0) == Stat(
            czxid=entry.czxid,
            mzxid=0,
            pzxid=0,
            ctime_ms=0,
            mtime_ms=0,
            version=entry.version,
            cversion=entry.births + entry.deaths,
            ephemeral_owner=SessionId(entry.owner),
            data_length=len(entry.data),
            num_children=len(children),
        )
        assert tree.children(path) == tuple(sorted(c.rpartition("/")[2] for c in children))


def test_create_returns_the_stat() -> None:
    tree = ZnodeTree()
    session_id = SessionId(tree.apply(OpenSession(), 1).zxid)
    applied = tree.apply(ZnodeChange(session_id, (Create(path="/a", ephemeral=True),)), 5)
    assert applied.result == (Created("/a", tree.get("/a").stat),)
    assert (tree.get("/a").ctime_ms, tree.get("/a").czxid) == (5, applied.zxid)
