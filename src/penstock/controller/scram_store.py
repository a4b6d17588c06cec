"""The cluster's SCRAM users in the metadata store, and the copy that a broker checks logins with.

Every broker writes by itself, on the condition that nothing has changed meanwhile, and announces
the change as Kafka's tools do; every broker watches the announcements, and the list of users.
Invariant: a credential that cannot be read opens nothing. While the store cannot be reached a
broker decides by the copy that it has.
"""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.scram_znodes import (
    LOGIN_SECRET,
    SCRAM_ZNODES,
    Credentials,
    decode_credentials,
    encode_credential,
    find_user,
    user_path,
)
from penstock.controller.znodes import (
    CONFIG_CHANGE,
    CONFIG_CHANGES,
    USER_CONFIGS,
    decode_config_change,
    decode_configs,
    encode_config_change,
    encode_configs,
)
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
    Operation,
    Session,
    SessionId,
    SetData,
    WatchEvent,
)
from penstock.protocol.scram import ScramCredential, ScramMechanism
from penstock.security.sasl.scram_users import ScramUsers

MAX_ATTEMPTS = 10  # of a conditional write
_MAX_PAUSE_S = 0.05  # between two of them, more with each
_RETRY_PAUSE_S = 0.2  # while the store cannot be reached
_READS_AT_ONCE = 100
_SECRET_BYTES = 32

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# What becomes of each mechanism's credential; None: it is deleted.
CredentialChanges = Mapping[ScramMechanism, ScramCredential | None]


class KeepsScramUsers(Protocol):
    """What handlers of requests about users need."""

    async def read(self, user: str) -> Credentials:
        """Empty for a user that does not exist. DamagedZnode or MetadataStoreError."""

    async def list_users(self) -> dict[str, Credentials]:
        """All that have credentials that can be read. MetadataStoreError."""

    async def alter(self, user: str, changes: CredentialChanges) -> None:
        """NoSuchCredential, TooManyUserChanges, DamagedZnode or MetadataStoreError."""


class NoSuchCredential(LookupError):
    """A credential that is to be deleted does not exist."""


class TooManyUserChanges(Exception):
    """Others changed the user each time before this broker's change."""


class _StoredUser(NamedTuple):
    configs: dict[str, str]  # quotas, too
    version: int | None  # None: there is no znode


class ScramStore:
    """Implements KeepsScramUsers. Owned by the event loop."""

    def __init__(self, session: Session, users: ScramUsers, logger: EventLogger) -> None:
        self._session = session  # the broker's current one, whichever that is
        self._users = users
        self._logger = logger
        self._seen: set[str] = set()  # announcements that were followed
        self._loaded_session: SessionId | None = None  # in which everything was read
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()  # one reads and replaces at a time

    # -- following -------------------------------------------------------------------------

    async def load(self) -> None:
        """Read everything, and watch for changes."""
        session = self._session.id
        await ensure_znodes(self._session, SCRAM_ZNODES)
        self._users.use_secret(await self._read_secret())
        async with self._lock:
            # Watched first: what changes while they are read is announced.
            self._seen = set(await self._list_changes())
            users = await self._list_names()
            await self._take({*users, *self._users.names()})
        # Last: what fails on the way is done again, announced or not.
        self._loaded_session = session

    async def follow(self) -> None:
        """A task of the broker: takes what other brokers and Kafka's tools announce."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._session.id != self._loaded_session:
                    await self.load()  # the watches went with the one before
                else:
                    await self._follow_changes()
            except (ConnectionLoss, SessionExpired):
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._changed.set()

    async def _follow_changes(self) -> None:
        changes = await self._list_changes()
        new = [path for path in changes if path not in self._seen]
        announced = await _gather(new, self._find_announced)
        async with self._lock:
            listed, copied = set(await self._list_names()), set(self._users.names())
            # Also those that somebody has added or removed without an announcement.
            await self._take({*filter(None, announced), *(listed ^ copied)})
        self._seen = set(changes)

    async def _list_changes(self) -> list[str]:
        names = await self._session.children(CONFIG_CHANGES, self._on_change)
        return [f"{CONFIG_CHANGES}/{name}" for name in names]

    async def _list_names(self) -> list[str]:
        names = await self._session.children(USER_CONFIGS, self._on_change)
        users = (find_user(f"{USER_CONFIGS}/{name}") for name in names)
        return [user for user in users if user is not None]

    def _on_change(self, event: WatchEvent) -> None:
        self._changed.set()

    async def _find_announced(self, path: str) -> str | None:
        """The user that a notification names, if it names one."""
        try:
            return find_user(decode_config_change(path, (await self._session.get(path)).data))
        except (NoNode, DamagedZnode):  # deleted because it was old; reported by the controller
            return None

    async def _take(self, users: Collection[str]) -> None:
        """Read these again. Called with the lock held."""
        names = sorted(users)
        for user, credentials in zip(names, await _gather(names, self._try_read), strict=True):
            self._users.replace(user, credentials)

    async def _try_read(self, user: str) -> Credentials:
        try:
            return await self.read(user)
        except DamagedZnode as damaged:
            self._logger.error(
                "scram_user_damaged", f"{damaged}; the user cannot log in: create the user again"
            )
            return {}

    async def _read_secret(self) -> bytes:
        """Made by the first broker; all others take the same."""
        with suppress(NodeExists):
            await self._session.create(LOGIN_SECRET, secrets.token_bytes(_SECRET_BYTES))
        return (await self._session.get(LOGIN_SECRET)).data

    # -- reading and changing --------------------------------------------------------------

    async def read(self, user: str) -> Credentials:
        stored = await self._read_stored(user)
        return decode_credentials(user_path(user), stored.configs)

    async def list_users(self) -> dict[str, Credentials]:
        try:
            names = await self._session.children(USER_CONFIGS)
        except NoNode:
            return {}
        named = (find_user(f"{USER_CONFIGS}/{name}") for name in names)
        users = sorted(user for user in named if user is not None)
        read = zip(users, await _gather(users, self._try_read), strict=True)
        return {user: credentials for user, credentials in read if credentials}

    async def alter(self, user: str, changes: CredentialChanges) -> None:
        """All at once. In effect here when it returns, elsewhere soon."""
        await self._change(user, lambda configs: _changed(user, configs, changes))

    async def create_if_absent(
        self, user: str, make: Callable[[], Mapping[ScramMechanism, ScramCredential]]
    ) -> bool:
        """False if the user has credentials, which stay."""

        def add(configs: dict[str, str]) -> dict[str, str] | None:
            has_any = any(mechanism.value in configs for mechanism in ScramMechanism)
            return None if has_any else _changed(user, configs, make())

        return await self._change(user, add)

    async def _change(
        self, user: str, change: Callable[[dict[str, str]], dict[str, str] | None]
    ) -> bool:
        """False if `change` wants none."""
        await ensure_znodes(self._session, SCRAM_ZNODES)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            stored = await self._read_stored(user)
            configs = change(stored.configs)
            if configs is None:
                return False
            if await self._try_write(user, stored, configs):
                async with self._lock:
                    await self._take([user])
                return True
            await asyncio.sleep(random.uniform(0, _MAX_PAUSE_S * attempt))
        raise TooManyUserChanges(
            f"user {user[:100]!r} has changed {MAX_ATTEMPTS} times while this broker was changing "
            "it; try again"
        )

    async def _read_stored(self, user: str) -> _StoredUser:
        path = user_path(user)
        try:
            value = await self._session.get(path)
        except NoNode:
            return _StoredUser({}, None)
        return _StoredUser(decode_configs(path, value.data), value.stat.version)

    async def _try_write(self, user: str, stored: _StoredUser, configs: dict[str, str]) -> bool:
        """False: the user has changed since it was read."""
        path, data = user_path(user), encode_configs(configs)
        write: Operation = (
            Create(path=path, data=data)
            if stored.version is None
            else SetData(path=path, data=data, version=stored.version)
        )
        announcement = Create(path=CONFIG_CHANGE, data=encode_config_change(path), sequential=True)
        try:
            await self._session.multi([write, announcement])
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                return False
            raise failed.error from None
        return True


def _changed(user: str, configs: dict[str, str], changes: CredentialChanges) -> dict[str, str]:
    changed = dict(configs)
    for mechanism, credential in changes.items():
        if credential is not None:
            changed[mechanism.value] = encode_credential(credential)
        elif changed.pop(mechanism.value, None) is None:
            raise NoSuchCredential(f"user {user[:100]!r} has no credential of {mechanism.value}")
    return changed


async def _gather(
    items: Sequence[_Item], ask: Callable[[_Item], Awaitable[_Result]]
) -> list[_Result]:
    """In batches, because a session answers in order and keeps every question until then."""
    results: list[_Result] = []
    for at in range(0, len(items), _READS_AT_ONCE):
        results += await asyncio.gather(*map(ask, items[at : at + _READS_AT_ONCE]))
    return results
