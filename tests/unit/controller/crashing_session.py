"""A session whose process crashes at one of its transactions, before or after it is applied."""

from __future__ import annotations

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


class Crash(Exception):
    """The process crashed; nothing runs after this."""


class CrashingSession:
    def __init__(self, session: Session, *, at: int | None = None, is_done: bool = False) -> None:
        self._session = session
        self._at = at  # the number of the transaction; None: never
        self._is_done = is_done  # whether that transaction is applied
        self.transactions = 0

    @property
    def id(self) -> SessionId:
        return self._session.id

    @property
    def state(self) -> SessionState:
        return self._session.state

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._session.listen(listener)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        return await self._session.create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        return await self._session.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._session.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        return await self._session.children(path, watch)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._session.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._session.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        number = self.transactions
        self.transactions += 1
        if number != self._at:
            return await self._session.multi(operations)
        if self._is_done:
            await self._session.multi(operations)
        raise Crash

    async def sync(self) -> None:
        await self._session.sync()

    async def close(self) -> None:
        await self._session.close()
