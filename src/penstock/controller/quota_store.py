"""The cluster's client quotas in the metadata store, and the copy that a broker enforces.

Every broker writes by itself, on the condition that nothing has changed meanwhile, and every broker
watches the znodes, so an edit by hand counts as much as one through a broker. What cannot be read
leaves the quotas before in effect; the active controller says what is wrong with it. While the
store cannot be reached a broker enforces the copy that it has.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.controller.acl_store import MAX_ATTEMPTS, TooManyChanges
from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.quota_znodes import (
    QUOTA_LISTS,
    QUOTA_ZNODES,
    decode_quotas,
    find_lists_below,
    find_quota_entity,
    missing_parents,
    quota_path,
)
from penstock.controller.stored_configs import StoredConfigs, read_configs
from penstock.controller.znodes import (
    CONFIG_CHANGE,
    decode_configs,
    encode_config_change,
    encode_configs,
)
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
)
from penstock.metadata_store.interface import (
    Create,
    EventKind,
    Operation,
    Session,
    SessionId,
    SetData,
    Stat,
    WatchEvent,
)
from penstock.model.quotas import QuotaEntity, QuotaOperation, Quotas, format_quota

Replace = Callable[[Mapping[QuotaEntity, Quotas]], None]

_MAX_PAUSE_S = 0.05  # between two attempts to write, more with each
_RETRY_PAUSE_S = 0.2  # while the store cannot be reached
_READS_AT_ONCE = 500


class ChangesQuotas(Protocol):
    """What handlers of requests about quotas need."""

    def quotas(self) -> Mapping[QuotaEntity, Quotas]: ...

    async def alter(self, entity: QuotaEntity, operations: Sequence[QuotaOperation]) -> None:
        """InvalidQuota, TooManyChanges, DamagedZnode or MetadataStoreError."""


class QuotaStore:
    """Implements ChangesQuotas. Owned by the event loop."""

    def __init__(self, session: Session, replace: Replace, logger: EventLogger) -> None:
        self._session = session  # the broker's current one, whichever that is
        self._replace = replace
        self._logger = logger
        self._copy: dict[str, Quotas] = {}  # by path; no empty ones
        self._watched: set[str] = set()  # znodes of entities whose data is watched
        self._listed: set[str] = set()  # znodes whose children are watched
        self._events: set[WatchEvent] = set()  # that are not followed yet
        self._notified = asyncio.Event()
        self._lock = asyncio.Lock()  # one reads and replaces at a time
        self._loaded_session: SessionId | None = None  # in which everything was read

    def quotas(self) -> dict[QuotaEntity, Quotas]:
        copy: dict[QuotaEntity, Quotas] = {}
        for path in sorted(self._copy):
            entity = find_quota_entity(path)
            if entity is not None:
                copy[entity] = self._copy[path]
        return copy

    # -- reading ---------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything, and watch for changes."""
        session = self._session.id
        await ensure_znodes(self._session, QUOTA_ZNODES)
        async with self._lock:
            self._watched.clear()
            self._listed.clear()
            self._events.clear()
            paths = await self._list(QUOTA_LISTS)
            for path in self._copy.keys() - set(paths):
                del self._copy[path]
            await self._read(paths)
        self._loaded_session = session

    async def _list(self, lists: Sequence[str]) -> list[str]:
        """The znodes of entities that are new in these lists, and below what is new."""
        new: list[str] = []
        while lists:
            self._listed.update(lists)
            children = await self._children_of(lists)
            unwatched = [path for path in children if path not in self._watched]
            new += [path for path in unwatched if find_quota_entity(path) is not None]
            below = [path for child in children for path in find_lists_below(child)]
            lists = [path for path in below if path not in self._listed]
        return new

    async def _children_of(self, lists: Sequence[str]) -> list[str]:
        children: list[str] = []
        for at in range(0, len(lists), _READS_AT_ONCE):
            chunk = lists[at : at + _READS_AT_ONCE]
            names = await asyncio.gather(*map(self._names_in, chunk))
            children += (
                f"{path}/{name}" for path, below in zip(chunk, names, strict=True) for name in below
            )
        return children

    async def _names_in(self, path: str) -> tuple[str, ...]:
        while True:
            try:
                return await self._session.children(path, self._on_event)
            except NoNode:
                if path not in QUOTA_LISTS:
                    self._listed.discard(path)
                    return ()
                # Somebody has deleted the list itself: watch for its return.
                if await self._session.exists(path, self._on_event) is None:
                    return ()

    async def _read(self, paths: Sequence[str]) -> None:
        """Called with the lock held."""
        stored = await read_configs(self._session, paths, self._on_event)
        for path, configs in zip(paths, stored, strict=True):
            self._take(path, configs)
        self._replace(self.quotas())

    def _take(self, path: str, stored: StoredConfigs) -> None:
        entity = find_quota_entity(path)
        if stored.configs is None and not stored.problem:
            self._watched.discard(path)
            self._copy.pop(path, None)
            return
        self._watched.add(path)
        if stored.configs is None or entity is None:
            return  # it cannot be read: what was in effect stays
        quotas = decode_quotas(entity, stored.configs)
        if quotas:
            self._copy[path] = quotas
        else:
            self._copy.pop(path, None)

    # -- following -------------------------------------------------------------------------

    def _on_event(self, event: WatchEvent) -> None:
        self._events.add(event)
        self._notified.set()

    async def follow(self) -> None:
        """A task of the broker: takes what other brokers, Kafka's tools and people change."""
        while True:
            await self._notified.wait()
            self._notified.clear()
            events = tuple(self._events)
            self._events.clear()
            try:
                if self._session.id != self._loaded_session:
                    await self.load()  # the watches went with the one before
                elif any(event.kind is EventKind.SESSION_ENDED for event in events):
                    raise SessionExpired(self._session.id)
                else:
                    await self._follow(events)
            except (ConnectionLoss, SessionExpired):
                self._events.update(events)
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._notified.set()

    async def _follow(self, events: Sequence[WatchEvent]) -> None:
        lists = {event.path for event in events if event.kind is EventKind.CHILD}
        changed = {event.path for event in events if event.kind is not EventKind.CHILD}
        deleted = {event.path for event in events if event.kind is EventKind.DELETED}
        lists |= changed & set(QUOTA_LISTS)
        async with self._lock:
            changed_znodes = [path for path in changed if find_quota_entity(path) is not None]
            self._watched.difference_update(changed_znodes)
            self._listed.difference_update(lists | deleted)
            new = await self._list(sorted(lists))
            await self._read(list(dict.fromkeys([*changed_znodes, *new])))

    # -- changing --------------------------------------------------------------------------

    async def alter(self, entity: QuotaEntity, operations: Sequence[QuotaOperation]) -> None:
        """All of them at once. In effect here when it returns, elsewhere soon."""
        path = quota_path(entity)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if await self._try_alter(path, operations):
                async with self._lock:
                    await self._read([path])
                return
            await asyncio.sleep(random.uniform(0, _MAX_PAUSE_S * attempt))
        raise TooManyChanges(
            f"{path} has changed {MAX_ATTEMPTS} times while this broker was changing the quotas of "
            f"{entity}; try again"
        )

    async def _try_alter(self, path: str, operations: Sequence[QuotaOperation]) -> bool:
        """False: it has changed since it was read."""
        stat: Stat | None = None
        configs: dict[str, str] = {}
        with suppress(NoNode):
            value = await self._session.get(path)
            configs, stat = decode_configs(path, value.data), value.stat
        wanted = _apply(configs, operations)
        if wanted == configs:
            return True
        changes = [
            *await self._create_parents(path, stat),
            _write(path, wanted, stat),
            Create(path=CONFIG_CHANGE, data=encode_config_change(path), sequential=True),
        ]
        try:
            await self._session.multi(changes)
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                return False
            raise failed.error from None
        return True

    async def _create_parents(self, path: str, stat: Stat | None) -> list[Operation]:
        if stat is not None:
            return []
        parents = missing_parents(path)
        stats = await asyncio.gather(*map(self._session.exists, parents))
        return [
            Create(path=parent) for parent, there in zip(parents, stats, strict=True) if not there
        ]


def _apply(configs: Mapping[str, str], operations: Sequence[QuotaOperation]) -> dict[str, str]:
    """Credentials that lie in the same znode stay as they are."""
    wanted = dict(configs)
    for key, value in operations:
        if value is None:
            wanted.pop(key, None)
        else:
            wanted[key] = format_quota(key, value)
    return wanted


def _write(path: str, configs: Mapping[str, str], stat: Stat | None) -> Operation:
    data = encode_configs(configs)
    if stat is None:
        return Create(path=path, data=data)
    return SetData(path=path, data=data, version=stat.version)
