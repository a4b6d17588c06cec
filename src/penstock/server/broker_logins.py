"""The broker's SCRAM users: their store, and those that exist before the first listener opens.

Those are the first administrator (`penstock.admin.user`) and the user as which brokers log in at
each other. Invariant: a user that exists keeps its credentials.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.controller.scram_store import ScramStore
from penstock.logs.event_logger import EventLogger
from penstock.protocol.scram import ScramCredential, ScramMechanism, make_credential
from penstock.security.sasl.login import SaslListener
from penstock.security.sasl.scram_users import ScramUsers
from penstock.server.errors import StartRefused
from penstock.server.inter_broker_security import inter_broker_security
from penstock.server.jwks import TokenKeys
from penstock.server.lazy import Lazy
from penstock.server.listener_sasl import make_listener_sasl
from penstock.server.metadata_store import BrokerMetadataStore

PASSWORD_VARIABLE = "PENSTOCK_ADMIN_PASSWORD"  # noqa: S105 (a name)
_MAX_PASSWORD_BYTES = 4_096
_SCRAM = {mechanism.value: mechanism for mechanism in ScramMechanism}


class FirstUser(NamedTuple):
    name: str
    password: str
    mechanisms: tuple[ScramMechanism, ...]

    def __repr__(self) -> str:
        return f"FirstUser({self.name!r})"

    def make_credentials(self) -> Mapping[ScramMechanism, ScramCredential]:
        return {
            mechanism: make_credential(mechanism, self.password) for mechanism in self.mechanisms
        }


def find_first_users(
    config: EffectiveConfig, sasl: Mapping[str, SaslListener]
) -> tuple[FirstUser, ...]:
    """Raises StartRefused. Read before anything is opened."""
    users = (_find_admin(config, sasl), _find_broker(config, sasl))
    return tuple(user for user in users if user is not None)


def uses_scram(sasl: Mapping[str, SaslListener]) -> bool:
    return any(_SCRAM.keys() & listener.mechanisms.keys() for listener in sasl.values())


def _find_admin(config: EffectiveConfig, sasl: Mapping[str, SaslListener]) -> FirstUser | None:
    name = config.find_str("penstock.admin.user")
    if not name:
        return None
    if not uses_scram(sasl):
        raise StartRefused(
            f"penstock.admin.user is {name[:100]!r}, and no listener lets it log in; add "
            "SCRAM-SHA-512 to sasl.enabled.mechanisms of a listener with SASL_SSL"
        )
    return FirstUser(name, _read_password(config), tuple(ScramMechanism))


def _read_password(config: EffectiveConfig) -> str:
    path = config.find_str("penstock.admin.password.file")
    if not path:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        where = f"the environment variable {PASSWORD_VARIABLE}"
    else:
        where = path
        try:
            with Path(path).open("rb") as file:
                password = file.read(_MAX_PASSWORD_BYTES).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise StartRefused(
                f"penstock.admin.password.file: {path} cannot be read ({reason})"
            ) from None
    password = password.partition("\n")[0].removesuffix("\r")
    if not password:
        raise StartRefused(
            f"penstock.admin.user has no password: {where} is empty or not set; use "
            "penstock.admin.password.file"
        )
    return password


def _find_broker(config: EffectiveConfig, sasl: Mapping[str, SaslListener]) -> FirstUser | None:
    """As whom this broker logs in at others by SCRAM."""
    if not config["zookeeper.connect"] or not uses_scram(sasl):
        return None
    login = inter_broker_security(config).sasl
    if login is None or login.mechanism not in _SCRAM:
        return None
    return FirstUser(login.username, login.password, (_SCRAM[login.mechanism],))


class BrokerLogins:
    """The SASL of a broker: its listeners and its SCRAM users. Owned by the event loop."""

    def __init__(self, config: EffectiveConfig) -> None:
        """Raises StartRefused. Nothing is opened yet."""
        self.users = ScramUsers()
        self._keys = TokenKeys()
        self.listeners = make_listener_sasl(config, self.users, self._keys)
        self._first_users = find_first_users(config, self.listeners)
        self._following: asyncio.Task[None] | None = None  # None: no listener has SCRAM

    async def open(
        self,
        scram: Lazy[ScramStore],
        store: BrokerMetadataStore,
        logger: EventLogger,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Load the users and follow their changes, until `close`."""
        self._keys.follow(logger, tasks)
        if not uses_scram(self.listeners):
            return
        users = scram.get()
        await store.ask_at_startup(lambda session: users.load())
        for first in self._first_users:
            await self._create(first, users, store, logger)
        self._following = tasks.create_task(users.follow(), name="scram-users")

    async def _create(
        self, first: FirstUser, users: ScramStore, store: BrokerMetadataStore, logger: EventLogger
    ) -> None:
        is_new = await store.ask_at_startup(
            lambda session: users.create_if_absent(first.name, first.make_credentials)
        )
        if is_new:
            logger.info("user_created", f"user {first.name[:100]!r} was absent, and is created")

    def close(self) -> None:
        """Before the metadata store is closed."""
        self._keys.close()
        if self._following is not None:
            self._following.cancel()
