"""The znodes of client quotas: the paths of Kafka 3.9, and the entities that they are of.

Names are quoted as in a URL, so that a name with a slash has a znode and the default cannot be
mistaken for a name. A user's znode also has the user's credentials.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from penstock.controller.znodes import (
    ALL_BROKERS,
    CLIENT_CONFIGS,
    CONFIG_CHANGES,
    IP_CONFIGS,
    USER_CONFIGS,
    quote_entity,
)
from penstock.metadata_store.errors import InvalidPath
from penstock.metadata_store.paths import check_path, parent_of
from penstock.model.quotas import (
    DEFAULT_ENTITY,
    InvalidQuota,
    QuotaEntity,
    QuotaKey,
    Quotas,
    find_key,
    is_rate,
)

QUOTA_LISTS = (USER_CONFIGS, CLIENT_CONFIGS, IP_CONFIGS)
QUOTA_ZNODES = ("/config", *QUOTA_LISTS, CONFIG_CHANGES)  # parents first
CLIENTS_OF_USER = "clients"


def quota_path(entity: QuotaEntity) -> str:
    """Or InvalidQuota if no znode can have the name."""
    user, client_id, ip = entity
    if ip is not None:
        path = f"{IP_CONFIGS}/{sanitize(ip)}"
    elif user is None:
        path = f"{CLIENT_CONFIGS}/{sanitize(client_id or DEFAULT_ENTITY)}"
    elif client_id is None:
        path = f"{USER_CONFIGS}/{sanitize(user)}"
    else:
        path = f"{USER_CONFIGS}/{sanitize(user)}/{CLIENTS_OF_USER}/{sanitize(client_id)}"
    try:
        return check_path(path)
    except InvalidPath as error:
        raise InvalidQuota(str(error)) from None


def find_quota_entity(path: str) -> QuotaEntity | None:
    """None: no znode of quotas."""
    match path.split("/"):
        case ["", "config", "users", user]:
            return QuotaEntity(_desanitize(user))
        case ["", "config", "users", user, "clients", client_id]:
            return QuotaEntity(_desanitize(user), _desanitize(client_id))
        case ["", "config", "clients", client_id]:
            return QuotaEntity(None, _desanitize(client_id))
        case ["", "config", "ips", ip]:
            return QuotaEntity(ip=_desanitize(ip))
        case _:
            return None


def find_lists_below(path: str) -> tuple[str, ...]:
    """A user may have a list of client ids."""
    if parent_of(path) == USER_CONFIGS:
        return (path,)
    is_clients = parent_of(parent_of(path)) == USER_CONFIGS and path.endswith(f"/{CLIENTS_OF_USER}")
    return (path,) if is_clients else ()


def missing_parents(path: str) -> list[str]:
    """The znodes between a list and the path, which may have to be created. Parents first."""
    parents: list[str] = []
    while (path := parent_of(path)) not in QUOTA_LISTS:
        parents.insert(0, path)
    return parents


def sanitize(name: str) -> str:
    return ALL_BROKERS if name == DEFAULT_ENTITY else quote_entity(name)


def _desanitize(name: str) -> str:
    return DEFAULT_ENTITY if name == ALL_BROKERS else unquote(name)


def decode_quotas(entity: QuotaEntity, configs: Mapping[str, str]) -> Quotas:
    """The quotas among its configs; those that are none are left out. The active controller says
    what is wrong with them."""
    quotas: dict[QuotaKey, float] = {}
    for name, value in configs.items():
        try:
            key = find_key(entity, name)
        except InvalidQuota:
            continue
        if is_rate(value):
            quotas[key] = float(value)
    return quotas
