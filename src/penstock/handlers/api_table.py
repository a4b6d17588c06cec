"""The only list of what this broker serves: it feeds dispatch and ApiVersions alike.

A handler that is not here does not exist for clients. Each is one file with an `API` of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.handlers import api_versions
from penstock.handlers.api import Api
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import preload

_APIS: tuple[Api, ...] = ()

APIS: Mapping[ApiKey, Api] = MappingProxyType(
    {api.key: api for api in (*_APIS, api_versions.make_api(_APIS))}
)
assert len(APIS) == len(_APIS) + 1, "an API stands twice in the table"


def preload_schemas() -> None:
    """Import every served schema now: about 10 ms each, not to be paid in front of a client."""
    preload({key: api.versions for key, api in APIS.items()})
