"""Who is called for which event. One-shot: a watch leaves the table when it is called.

Not when: the store calls them. A watch belongs to a session and goes with it.
"""

from typing import NamedTuple

from penstock.metadata_store.interface import EventKind, SessionId, Watch, WatchEvent


class _Entry(NamedTuple):
    session_id: SessionId
    watch: Watch


# By path. A dict for its order: who armed first is called first.
_Table = dict[str, dict[_Entry, None]]


class WatchManager:
    """Owned by one store."""

    def __init__(self) -> None:
        self._on_data: _Table = {}  # existence too
        self._on_children: _Table = {}

    def watch_data(self, session_id: SessionId, path: str, watch: Watch) -> None:
        self._on_data.setdefault(path, {})[_Entry(session_id, watch)] = None

    def watch_children(self, session_id: SessionId, path: str, watch: Watch) -> None:
        self._on_children.setdefault(path, {})[_Entry(session_id, watch)] = None

    def take(self, event: WatchEvent) -> list[Watch]:
        """Whom to call. One watch of both data and children hears of a deletion once."""
        entries: dict[_Entry, None] = {}
        if event.kind is not EventKind.CHILD:
            entries |= self._on_data.pop(event.path, {})
        if event.kind in (EventKind.CHILD, EventKind.DELETED):
            entries |= self._on_children.pop(event.path, {})
        return [entry.watch for entry in entries]

    def take_all_of(self, session_id: SessionId) -> list[Watch]:
        """Whom to tell that their session has ended; each once, however many it has armed."""
        watches: dict[Watch, None] = {}
        for table in (self._on_data, self._on_children):
            for path in list(table):
                for entry in [e for e in table[path] if e.session_id == session_id]:
                    del table[path][entry]
                    watches[entry.watch] = None
                if not table[path]:
                    del table[path]
        return list(watches)

    @property
    def data_paths(self) -> tuple[str, ...]:
        return tuple(self._on_data)

    @property
    def children_paths(self) -> tuple[str, ...]:
        return tuple(self._on_children)

    def __len__(self) -> int:
        return sum(len(v) for t in (self._on_data, self._on_children) for v in t.values())
