"""The broker's current metadata store session, for parts that outlive a session.

A request during the replacement of a session fails as on the old one; its caller decides what
follows.
"""

from collections.abc import Callable, Sequence

from penstock.metadata_store.interface import (
    ANY_VERSION,
    Created,
    Operation,
    Result,
    Session,
    SessionId,
    SessionState,
    Stat,
    Value,
    Watch,
)


class CurrentSession:
    """Implements Session. Watches and listeners belong to the session that they were set on."""

    def __init__(self, session: Session) -> None:
        self.current = session

    @property
    def id(self) -> SessionId:
        return self.current.id

    @property
    def state(self) -> SessionState:
        return self.current.state

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self.current.listen(listener)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        return await self.current.create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        return await self.current.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self.current.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        return await self.current.children(path, watch)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self.current.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.current.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        return await self.current.multi(operations)

    async def sync(self) -> None:
        await self.current.sync()

    async def close(self) -> None:
        await self.current.close()
