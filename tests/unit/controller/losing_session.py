"""A session that loses its connection at the first read of a znode, and then works."""

from penstock.metadata_store.errors import ConnectionLoss
from penstock.metadata_store.interface import Session, Value, Watch
from penstock.server.current_session import CurrentSession


class LosingSession(CurrentSession):
    def __init__(self, session: Session, path: str) -> None:
        super().__init__(session)
        self._path: str | None = path  # None: the connection was lost already

    async def get(self, path: str, watch: Watch | None = None) -> Value:
        if path == self._path:
            self._path = None
            raise ConnectionLoss("the connection was lost")
        return await super().get(path, watch)
