"""Watches the config znodes, so that a change made by hand or by a tool takes effect at once.

Called by the controller's task, one at a time. An event costs the reads of the znodes that have
changed, however many others there are; znodes are read in batches. A notification below
/config/changes, as Kafka's tools create one, is not needed, and only has its znode read again.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.controller.config_resources import find_resource
from penstock.controller.interface import ConfigScope
from penstock.controller.quota_znodes import find_lists_below
from penstock.controller.stored_configs import READS_AT_ONCE, StoredConfigs, read_configs
from penstock.controller.znodes import (
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    CONFIG_CHANGES,
    GROUP_CONFIGS,
    IP_CONFIGS,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    decode_config_change,
    topic_config_path,
)
from penstock.metadata_store.errors import BadVersion, DamagedZnode, MultiFailed, NoNode
from penstock.metadata_store.interface import Delete, EventKind, Value, WatchEvent

if TYPE_CHECKING:
    from penstock.controller.active_controller import ActiveController

# Topics need no list: each has its config znode, which is watched even while it does not exist.
_LISTS = (BROKER_CONFIGS, GROUP_CONFIGS, USER_CONFIGS, CLIENT_CONFIGS, IP_CONFIGS)
MAX_NOTIFICATIONS = 1_000  # handled per event: they are not needed
NOTIFICATION_TTL_MS = 15 * 60 * 1000  # as in Kafka; counted from the newest one


class ConfigWatches:
    """Owned by its ActiveController."""

    def __init__(self, active: "ActiveController") -> None:
        self._active = active
        self._watched: set[str] = set()  # config znodes with a watch
        self._notifications: frozenset[str] = frozenset()  # of the last listing

    async def fail_over(self, watched_topics: Iterable[str]) -> None:
        """`watched_topics`: those whose config znode was read with a watch at the election."""
        self._watched.update(map(topic_config_path, watched_topics))
        await self.watch_topics(self._active.state.topics)
        await self._list(_LISTS)
        await self._list_notifications(is_first=True)

    async def watch_topics(self, topics: Iterable[str]) -> None:
        await self._read(self._unwatched(map(topic_config_path, topics)), is_new=True)

    async def changed(self, events: Collection[WatchEvent]) -> None:
        lists = [event.path for event in events if event.kind is EventKind.CHILD]
        data = [event.path for event in events if event.kind is not EventKind.CHILD]
        if CONFIG_CHANGES in (*lists, *data):
            data += await self._list_notifications()
        await self._read(list(dict.fromkeys(path for path in data if find_resource(path))))
        await self._list([path for path in (*lists, *data) if _is_list(path)])

    async def _list(self, paths: Sequence[str]) -> None:
        """Read the children that are new; those that are gone are events of their own."""
        children: list[str] = []
        for at in range(0, len(paths), READS_AT_ONCE):
            chunk = list(dict.fromkeys(paths[at : at + READS_AT_ONCE]))
            names = await asyncio.gather(*map(self._children, chunk))
            children += (
                f"{path}/{name}" for path, below in zip(chunk, names, strict=True) for name in below
            )
        new = self._unwatched(path for path in children if find_resource(path))
        await self._read(new, is_new=True)
        lists = [path for path in children if _is_list(path)]
        if lists:
            await self._list(lists)

    async def _children(self, path: str) -> tuple[str, ...]:
        """The znodes that always exist are watched for their creation if somebody deletes them."""
        active = self._active
        while True:
            try:
                return await active.session.children(path, active.signals.config_edited)
            except NoNode:
                if path not in (*_LISTS, CONFIG_CHANGES):
                    return ()
                if await active.session.exists(path, active.signals.config_edited) is None:
                    return ()

    def _unwatched(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if path not in self._watched]

    async def _read(self, paths: Sequence[str], *, is_new: bool = False) -> None:
        """`is_new`: what was refused when it was loaded is not reported again."""
        for at in range(0, len(paths), READS_AT_ONCE):
            chunk = paths[at : at + READS_AT_ONCE]
            quiet = self._active.state.refused_configs if is_new else frozenset()
            self._watched.difference_update(chunk)
            gone = [path for path in chunk if self._is_of_no_topic(path)]
            read = dict.fromkeys(gone, StoredConfigs(None))
            read |= await self._read_watched([path for path in chunk if path not in read])
            await self._active.adopt_configs(read, quiet)

    async def _read_watched(self, paths: Sequence[str]) -> dict[str, StoredConfigs]:
        watch = self._active.signals.config_edited
        read = dict(zip(paths, await read_configs(self._active.session, paths, watch), strict=True))
        for path in paths:
            while _is_absent(read[path]) and _is_of_topic(path):
                if await self._active.session.exists(path, watch) is None:
                    break
                [read[path]] = await read_configs(self._active.session, [path], watch)
        self._watched.update(
            path for path in paths if not _is_absent(read[path]) or _is_of_topic(path)
        )
        return read

    def _is_of_no_topic(self, path: str) -> bool:
        name = path.removeprefix(f"{TOPIC_CONFIGS}/")
        return _is_of_topic(path) and self._active.state.find_topic(name) is None

    # Notifications.

    async def _list_notifications(self, *, is_first: bool = False) -> list[str]:
        """The paths that new notifications name. At the election all znodes are read anyway."""
        names = await self._children(CONFIG_CHANGES)
        new = [name for name in names if name not in self._notifications]
        self._notifications = frozenset(names)
        values = await self._find(
            [f"{CONFIG_CHANGES}/{name}" for name in names[:MAX_NOTIFICATIONS]]
        )
        await self._delete_old(values)
        named: list[str] = []
        for name in () if is_first else new:
            path = f"{CONFIG_CHANGES}/{name}"
            try:
                if path in values:
                    named.append(decode_config_change(path, values[path].data))
            except DamagedZnode as damaged:
                self._active.report_refused_configs(path, f"{path}: {damaged.why}; it is ignored")
        return named

    async def _find(self, paths: Sequence[str]) -> dict[str, Value]:
        async def find(path: str) -> Value | None:
            try:
                return await self._active.session.get(path)
            except NoNode:
                return None

        values = await asyncio.gather(*map(find, paths))
        return {path: value for path, value in zip(paths, values, strict=True) if value}

    async def _delete_old(self, notifications: dict[str, Value]) -> None:
        newest = max((value.stat.ctime_ms for value in notifications.values()), default=0)
        for path, value in notifications.items():
            if value.stat.ctime_ms < newest - NOTIFICATION_TTL_MS:
                try:
                    await self._active.write([Delete(path=path)])
                except MultiFailed as failed:
                    if not isinstance(failed.error, NoNode | BadVersion):
                        raise


def _is_absent(stored: StoredConfigs) -> bool:
    return stored.configs is None and not stored.problem


def _is_of_topic(path: str) -> bool:
    resource = find_resource(path)
    return resource is not None and resource.scope is ConfigScope.TOPIC


def _is_list(path: str) -> bool:
    """A user is one too: of its `clients`, which is one of client ids."""
    return path in _LISTS or bool(find_lists_below(path))
