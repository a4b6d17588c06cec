"""A session of the embedded store: turns the interface's calls into commands and reads.

Keeps no data. Writes go through the store's queue; a read is done at once, unless writes of the
same session are still queued.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.metadata_store.embedded.znode_tree import (
    EndSession,
    Failure,
    OperationResult,
    ZnodeChange,
)
from penstock.metadata_store.errors import MultiFailed, SessionExpired
from penstock.metadata_store.interface import (
    ANY_VERSION,
    Create,
    Created,
    Delete,
    Operation,
    Result,
    SessionId,
    SessionState,
    SetData,
    Stat,
    Value,
    Watch,
    check_operations,
)
from penstock.metadata_store.paths import check_path

if TYPE_CHECKING:  # the store creates its sessions
    from penstock.metadata_store.embedded.store import EmbeddedMetadataStore

Answer = TypeVar("Answer")


class EmbeddedSession:
    """Created by the store, which ends it with `enter`."""

    def __init__(self, store: "EmbeddedMetadataStore", session_id: SessionId) -> None:
        self.id = session_id
        self.state = SessionState.CONNECTED
        self._store = store
        self._listeners: list[Callable[[SessionState], None]] = []
        self._unanswered = 0  # writes

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def enter(self, state: SessionState) -> None:
        """Called by the store."""
        self.state = state
        for listener in self._listeners:
            listener(state)

    def count_answer(self) -> None:
        """Called by the store with the answer, because the caller may be gone by then."""
        self._unanswered -= 1

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        operation = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        created = await self._change_one(operation)
        assert isinstance(created, Created)
        return created

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        def read() -> Value:
            node = self._store.tree.get(path)
            if watch is not None:
                self._store.watches.watch_data(self.id, path, watch)
            return Value(node.data, node.stat)

        return await self._read(path, read)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def read() -> Stat | None:
            node = self._store.tree.find(path)
            if watch is not None:
                self._store.watches.watch_data(self.id, path, watch)
            return None if node is None else node.stat

        return await self._read(path, read)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        def read() -> tuple[str, ...]:
            names = self._store.tree.children(path)
            if watch is not None:
                self._store.watches.watch_children(self.id, path, watch)
            return names

        return await self._read(path, read)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await self._change_one(SetData(path=path, data=data, version=version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._change_one(Delete(path=path, version=version))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        result = await self._change(tuple(operations))
        if not isinstance(result, Failure):
            return tuple(o.path if isinstance(o, Created) else o for o in result)
        if isinstance(result.error, SessionExpired):
            raise result.error
        raise MultiFailed(result.failed_index, result.error, len(operations))

    async def sync(self) -> None:
        # Answered writes are applied, so only the order within the session matters.
        await self._read("/", lambda: None)

    async def close(self) -> None:
        if self.state is not SessionState.ENDED:
            await self._store.submit(EndSession(self.id))

    async def _change_one(self, operation: Operation) -> OperationResult:
        result = await self._change((operation,))
        if isinstance(result, Failure):
            raise result.error
        return result[0]

    async def _change(
        self, operations: tuple[Operation, ...]
    ) -> tuple[OperationResult, ...] | Failure:
        check_operations(operations)
        self._check_open()
        answer = self._store.submit(ZnodeChange(self.id, operations))
        self._unanswered += 1
        return (await answer).result

    async def _read(self, path: str, read: Callable[[], Answer]) -> Answer:
        check_path(path)
        self._check_open()

        def read_while_open() -> Answer:
            self._check_open()
            return read()

        if self._unanswered:
            return await self._store.read_in_turn(read_while_open)
        self._store.check_serving()
        return read_while_open()

    def _check_open(self) -> None:
        if self.state is SessionState.ENDED:
            raise SessionExpired(self.id)
