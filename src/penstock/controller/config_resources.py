"""The resources that have configs, by the paths of their znodes; the configs of users and clients.

Pure. Not the access to the znodes (`config_watches`), nor what a change means (`config_edits`).
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple
from urllib.parse import unquote

from penstock.controller.interface import ConfigScope
from penstock.controller.znodes import (
    ALL_BROKERS,
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    group_of_config,
)

DEFAULT_ENTITY = ""  # all users, or all client ids, that have no configs of their own
CLIENTS_OF_USER = "clients"


class ClientEntity(NamedTuple):
    """Whose quotas or credentials they are: a user's, a client id's, or those of both together."""

    user: str | None
    client_id: str | None

    def __str__(self) -> str:
        parts = (("user", self.user), ("client", self.client_id))
        return " and ".join(
            f"{kind} {name!r}" if name else f"every {kind} without its own"
            for kind, name in parts
            if name is not None
        )


class ConfigTarget(NamedTuple):
    """`name` as in AlterConfigs: "" is every broker."""

    scope: ConfigScope | None  # None: a user or a client, see `entity`
    name: str = ""
    entity: ClientEntity = ClientEntity(None, None)


def find_resource(path: str) -> ConfigTarget | None:
    """The resource whose configs the znode has; None if it is no config znode."""
    parent, _, name = path.rpartition("/")
    match parent:
        case _ if parent == TOPIC_CONFIGS:
            return ConfigTarget(ConfigScope.TOPIC, name)
        case _ if parent == BROKER_CONFIGS:
            return ConfigTarget(ConfigScope.BROKER, "" if name == ALL_BROKERS else name)
        case _ if parent == GROUP_CONFIGS:
            return ConfigTarget(ConfigScope.GROUP, group_of_config(name))
        case _ if parent == CLIENT_CONFIGS:
            return ConfigTarget(None, entity=ClientEntity(None, _entity_name(name)))
        case _ if parent == USER_CONFIGS:
            return ConfigTarget(None, entity=ClientEntity(_entity_name(name), None))
        case _:
            return _find_client_of_user(parent, name)


def _find_client_of_user(parent: str, name: str) -> ConfigTarget | None:
    user_path, _, last = parent.rpartition("/")
    root, _, user = user_path.rpartition("/")
    if root != USER_CONFIGS or last != CLIENTS_OF_USER:
        return None
    return ConfigTarget(None, entity=ClientEntity(_entity_name(user), _entity_name(name)))


def _entity_name(name: str) -> str:
    """Names are quoted as in a URL, so that the default cannot be mistaken for a name."""
    return DEFAULT_ENTITY if name == ALL_BROKERS else unquote(name)


# Values of users' and clients' configs.


def find_entity_problem(entity: ClientEntity, configs: Mapping[str, str]) -> str | None:
    """Why these cannot be the entity's configs. No value is quoted: it may be a credential."""
    for name, value in configs.items():
        check = _QUOTAS.get(name)
        if check is None and entity.client_id is None:
            check = _CREDENTIALS.get(name)
        if check is None:
            allowed = (*_QUOTAS, *(() if entity.client_id is not None else _CREDENTIALS))
            return f"{name[:100]!r} is no setting of it; known are {', '.join(allowed)}"
        problem = check(value)
        if problem is not None:
            return f"{name} {problem}"
    return None


def _check_rate(value: str) -> str | None:
    """Kafka's tools write rates as decimals, with a fraction or not."""
    try:
        is_rate = 0 < float(value) < inf
    except ValueError:
        is_rate = False
    return None if is_rate else "is not a number above 0"


def _check_credential(value: str) -> str | None:
    fields = dict(part.partition("=")[::2] for part in value.split(","))
    missing = [name for name in ("salt", "stored_key", "server_key") if not fields.get(name)]
    if missing:
        return f"has no {', '.join(missing)}"
    return None if fields.get("iterations", "").isdecimal() else "has no number of iterations"


_Check = Callable[[str], str | None]

_QUOTAS: Mapping[str, _Check] = {
    "producer_byte_rate": _check_rate,
    "consumer_byte_rate": _check_rate,
    "request_percentage": _check_rate,
    "controller_mutation_rate": _check_rate,
}
_CREDENTIALS: Mapping[str, _Check] = {
    "SCRAM-SHA-256": _check_credential,
    "SCRAM-SHA-512": _check_credential,
}
