"""The cluster's access control lists in the metadata store, and the copy that a broker decides by.

Every broker writes by itself, on the condition that nothing has changed meanwhile, and announces
the change in the same transaction; every broker watches the announcements. Invariant: the copy of a
pattern is replaced only by what was read after it, so it never goes back. While the store cannot be
reached a broker decides by the copy that it has.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from penstock.controller.acl_znodes import (
    ACL_ZNODES,
    EXTENDED_CHANGES,
    LITERAL_CHANGES,
    PATTERN_LISTS,
    acl_path,
    decode_entries,
    decode_notification,
    encode_entries,
    encode_notification,
    notification_path,
)
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import (
    BadVersion,
    ConnectionLoss,
    DamagedZnode,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    Create,
    Delete,
    Operation,
    Session,
    SessionId,
    SetData,
    Stat,
    Value,
    WatchEvent,
)
from penstock.model.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern

Entries = frozenset[AccessControlEntry]
Replace = Callable[[ResourcePattern, Iterable[AccessControlEntry]], None]

MAX_ATTEMPTS = 10  # of a conditional write
_MAX_PAUSE_S = 0.05  # between two of them, more with each
_RETRY_PAUSE_S = 0.2  # while the store cannot be reached
_READS_AT_ONCE = 100
_CHANGES = (LITERAL_CHANGES, EXTENDED_CHANGES)
NOTIFICATION_TTL_MS = 15 * 60 * 1000  # as in Kafka; counted from the newest one

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class ChangesAcls(Protocol):
    """What handlers of requests about rules need."""

    def bindings(self) -> Sequence[AclBinding]: ...

    async def add(self, bindings: Sequence[AclBinding]) -> None:
        """UnstorableName, TooManyChanges, DamagedZnode or MetadataStoreError."""

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """What each filter has removed. TooManyChanges, DamagedZnode or MetadataStoreError."""


class TooManyChanges(Exception):
    """Others changed the rules of a pattern each time before this broker's change."""


class _Stored(NamedTuple):
    entries: Entries
    stat: Stat | None  # None: there is no znode


class AclStore:
    """Implements ChangesAcls. Owned by the event loop."""

    def __init__(self, session: Session, replace: Replace, logger: EventLogger) -> None:
        self._session = session  # the broker's current one, whichever that is
        self._replace = replace
        self._logger = logger
        self._copy: dict[ResourcePattern, Entries] = {}
        self._seen: set[str] = set()  # announcements that were followed
        self._is_loaded = False
        self._loaded_session: SessionId | None = None  # in which everything was read
        self._announced = asyncio.Event()
        self._lock = asyncio.Lock()  # one reads and replaces at a time

    # -- reading ---------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything, and watch for changes. DamagedZnode: nobody knows what it allows."""
        session = self._session.id
        await ensure_znodes(self._session, ACL_ZNODES)
        async with self._lock:
            # Watched first: what changes while they are read is announced.
            self._seen = {path for root in _CHANGES for path in await self._list_changes(root)}
            patterns = await self._list_patterns()
            gone = self._copy.keys() - set(patterns)
            await self._take([*patterns, *sorted(gone)])
            self._is_loaded = True
        # Last: what fails on the way is done again, announced or not.
        self._loaded_session = session

    async def _list_patterns(self) -> list[ResourcePattern]:
        names = await _gather(PATTERN_LISTS, lambda entry: self._session.children(entry.path))
        return [
            entry.pattern(name)
            for entry, below in zip(PATTERN_LISTS, names, strict=True)
            for name in below
        ]

    async def _list_changes(self, root: str) -> list[str]:
        return [f"{root}/{name}" for name in await self._session.children(root, self._on_change)]

    def _on_change(self, event: WatchEvent) -> None:
        self._announced.set()

    async def _take(self, patterns: Sequence[ResourcePattern]) -> None:
        """Read these again. Called with the lock held."""
        read = await _gather(patterns, self._try_read)
        for pattern, stored in zip(patterns, read, strict=True):
            if isinstance(stored, _Stored):
                self._adopt(pattern, stored.entries)
            elif not self._is_loaded:
                raise stored
            else:
                self._logger.error(
                    "acls_damaged",
                    f"{stored}; until then the rules that were read before stay in effect",
                )

    def _adopt(self, pattern: ResourcePattern, entries: Entries) -> None:
        if entries:
            self._copy[pattern] = entries
        else:
            self._copy.pop(pattern, None)
        self._replace(pattern, entries)

    async def _try_read(self, pattern: ResourcePattern) -> "_Stored | DamagedZnode":
        try:
            return await self._read(pattern)
        except DamagedZnode as damaged:
            return damaged

    async def _read(self, pattern: ResourcePattern) -> _Stored:
        path = acl_path(pattern)
        try:
            value = await self._session.get(path)
        except NoNode:
            return _Stored(frozenset(), None)
        return _Stored(decode_entries(path, value.data), value.stat)

    def bindings(self) -> list[AclBinding]:
        """All rules of the copy, in a fixed order."""
        return [
            AclBinding(pattern, entry)
            for pattern in sorted(self._copy)
            for entry in sorted(self._copy[pattern])
        ]

    # -- following -------------------------------------------------------------------------

    async def follow(self) -> None:
        """A task of the broker: takes what other brokers and Kafka's tools announce."""
        while True:
            await self._announced.wait()
            self._announced.clear()
            try:
                if self._session.id != self._loaded_session:
                    await self.load()  # the watches went with the one before
                else:
                    await self._follow_announcements()
            except (ConnectionLoss, SessionExpired):
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._announced.set()

    async def _follow_announcements(self) -> None:
        paths = [path for root in _CHANGES for path in await self._list_changes(root)]
        values = await _gather(paths, self._find)
        announcements = {
            path: value for path, value in zip(paths, values, strict=True) if value is not None
        }
        new = {path: value for path, value in announcements.items() if path not in self._seen}
        async with self._lock:
            await self._take(await self._find_changed(new))
        self._seen = set(paths)
        await self._delete_old(announcements)

    async def _find_changed(self, new: Mapping[str, Value]) -> list[ResourcePattern]:
        """All patterns if an announcement names none."""
        try:
            return list(dict.fromkeys(decode_notification(path, new[path].data) for path in new))
        except DamagedZnode as damaged:
            self._logger.error("acl_change_damaged", f"{damaged}; all rules are read again")
            return sorted({*self._copy, *await self._list_patterns()})

    async def _find(self, path: str) -> Value | None:
        try:
            return await self._session.get(path)
        except NoNode:
            return None  # another broker has deleted it because it was old

    async def _delete_old(self, announcements: Mapping[str, Value]) -> None:
        newest = max((value.stat.ctime_ms for value in announcements.values()), default=0)
        for path, value in announcements.items():
            if value.stat.ctime_ms < newest - NOTIFICATION_TTL_MS:
                try:
                    await self._session.delete(path)
                except NoNode:
                    continue

    # -- changing --------------------------------------------------------------------------

    async def add(self, bindings: Sequence[AclBinding]) -> None:
        """Each pattern's rules all at once. In effect here when it returns, elsewhere soon."""
        by_pattern: dict[ResourcePattern, set[AccessControlEntry]] = defaultdict(set)
        for pattern, entry in bindings:
            by_pattern[pattern].add(entry)
        for pattern, entries in by_pattern.items():
            await self._change(pattern, partial(frozenset.union, frozenset(entries)))

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """What each filter has removed. Rules that several match belong to the first."""
        removed: list[list[AclBinding]] = []
        for wanted in filters:
            removed_here: list[AclBinding] = []
            for pattern in sorted(filter(wanted.matches_pattern, self._copy)):
                removed_here += await self._remove_from(pattern, wanted)
            removed.append(removed_here)
        return removed

    async def _remove_from(self, pattern: ResourcePattern, wanted: AclFilter) -> list[AclBinding]:
        gone: list[AclBinding] = []

        def without(stored: Entries) -> Entries:
            bindings = [AclBinding(pattern, entry) for entry in sorted(stored)]
            gone[:] = filter(wanted.matches, bindings)
            return stored - {binding.entry for binding in gone}

        await self._change(pattern, without)
        return gone

    async def _change(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> None:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            stored = await self._read(pattern)
            wanted = change(stored.entries)
            if wanted == stored.entries or await self._try_write(pattern, stored, wanted):
                async with self._lock:
                    await self._take([pattern])
                return
            await asyncio.sleep(random.uniform(0, _MAX_PAUSE_S * attempt))
        raise TooManyChanges(
            f"the rules of {pattern} have changed {MAX_ATTEMPTS} times while this broker was "
            "changing them; try again"
        )

    async def _try_write(self, pattern: ResourcePattern, stored: _Stored, wanted: Entries) -> bool:
        """False: they have changed since they were read."""
        announcement = Create(
            path=notification_path(pattern), data=encode_notification(pattern), sequential=True
        )
        try:
            await self._session.multi([_operation(acl_path(pattern), stored, wanted), announcement])
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                return False
            raise failed.error from None
        return True


def _operation(path: str, stored: _Stored, wanted: Entries) -> Operation:
    if stored.stat is None:
        return Create(path=path, data=encode_entries(wanted))
    if not wanted:
        return Delete(path=path, version=stored.stat.version)
    return SetData(path=path, data=encode_entries(wanted), version=stored.stat.version)


async def _gather(
    items: Sequence[_Item], ask: Callable[[_Item], Awaitable[_Result]]
) -> list[_Result]:
    """In batches, because a session answers in order and keeps every question until then."""
    results: list[_Result] = []
    for at in range(0, len(items), _READS_AT_ONCE):
        results += await asyncio.gather(*map(ask, items[at : at + _READS_AT_ONCE]))
    return results
