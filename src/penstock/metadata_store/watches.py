"""The armed watches of a store. One-shot: a watch is removed when its event is taken.

Not the calls, which the store makes. A watch belongs to a session and ends with it.
"""

from typing import NamedTuple

from penstock.metadata_store.interface import EventKind, SessionId, Watch, WatchEvent


class _Entry(NamedTuple):
    session_id: SessionId
    watch: Watch


# By path. A dict for its order: watches are called in the order in which they were armed.
_Table = dict[str, dict[_Entry, None]]


class WatchManager:
    """Owned by one store."""

    def __init__(self) -> None:
        self._on_data: _Table = {}  # and on existence
        self._on_children: _Table = {}

    def watch_data(self, session_id: SessionId, path: str, watch: Watch) -> None:
        self._on_data.setdefault(path, {})[_Entry(session_id, watch)] = None

    def watch_children(self, session_id: SessionId, path: str, watch: Watch) -> None:
        self._on_children.setdefault(path, {})[_Entry(session_id, watch)] = None

    def take(self, event: WatchEvent) -> list[Watch]:
        """The watches to call; one on both data and children is called once for a deletion."""
        entries: dict[_Entry, None] = {}
        if event.kind is not EventKind.CHILD:
            entries |= self._on_data.pop(event.path, {})
        if event.kind in (EventKind.CHILD, EventKind.DELETED):
            entries |= self._on_children.pop(event.path, {})
        return [entry.watch for entry in entries]

    def take_all_of(self, session_id: SessionId) -> list[Watch]:
        """The watches of a session that has ended, each once."""
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
