"""The resources that have configs, by the paths of their znodes; the configs of users and clients.

Pure. Not the access to the znodes (`config_watches`), nor what a change means (`config_edits`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.controller.interface import ConfigScope
from penstock.controller.quota_znodes import find_quota_entity
from penstock.controller.znodes import (
    ALL_BROKERS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    group_of_config,
)
from penstock.model.quotas import CLIENT_KEYS, IP_KEYS, MAX_RATE, MIN_RATE, QuotaEntity, is_rate

ClientEntity = QuotaEntity  # quotas and credentials lie in the same znodes


class ConfigTarget(NamedTuple):
    """`name` as in AlterConfigs: "" is every broker."""

    scope: ConfigScope | None  # None: a user, a client or an address, see `entity`
    name: str = ""
    entity: ClientEntity = ClientEntity()


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
        case _:
            entity = find_quota_entity(path)
            return None if entity is None else ConfigTarget(None, entity=entity)


# Values of users' and clients' configs.


def find_entity_problem(entity: ClientEntity, configs: Mapping[str, str]) -> str | None:
    """Why these cannot be the entity's configs. No value is quoted: it may be a credential."""
    quotas = CLIENT_KEYS if entity.ip is None else IP_KEYS
    credentials = _CREDENTIALS if entity.client_id is None and entity.ip is None else {}
    for name, value in configs.items():
        check = _check_rate if name in quotas else credentials.get(name)
        if check is None:
            allowed = ", ".join((*quotas, *credentials))
            return f"{name[:100]!r} is no setting of it; there is {allowed}"
        problem = check(value)
        if problem is not None:
            return f"{name} {problem}"
    return None


def _check_rate(value: str) -> str | None:
    return None if is_rate(value) else f"is not a number from {MIN_RATE:g} to {MAX_RATE:g}"


def _check_credential(value: str) -> str | None:
    fields = dict(part.partition("=")[::2] for part in value.split(","))
    missing = [name for name in ("salt", "stored_key", "server_key") if not fields.get(name)]
    if missing:
        return f"has no {', '.join(missing)}"
    return None if fields.get("iterations", "").isdecimal() else "has no number of iterations"


_Check = Callable[[str], str | None]

_CREDENTIALS: Mapping[str, _Check] = {
    "SCRAM-SHA-256": _check_credential,
    "SCRAM-SHA-512": _check_credential,
}
