"""The only list of the APIs that this broker serves, for the dispatcher and for ApiVersions.

An API that is not here does not exist for clients. Each has a file of its name with an `API`, which
is loaded on the first request or a while after start-up: a broker answers its first clients 20 ms
sooner without the others.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

from penstock.apis.api import Api
from penstock.apis.cluster.api_versions import make_api
from penstock.protocol.api_keys import ApiKey

# The implemented versions, by package; each file repeats its own.
_SERVED_BY_PACKAGE: Mapping[str, Mapping[ApiKey, range]] = MappingProxyType(
    {
        "data": {
            ApiKey.PRODUCE: range(13),
            ApiKey.FETCH: range(4, 18),
            ApiKey.LIST_OFFSETS: range(10),
            ApiKey.DELETE_RECORDS: range(3),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
        },
        "groups": {
            ApiKey.OFFSET_COMMIT: range(2, 11),
            ApiKey.OFFSET_FETCH: range(1, 11),
            ApiKey.FIND_COORDINATOR: range(7),
            ApiKey.JOIN_GROUP: range(10),
            ApiKey.HEARTBEAT: range(5),
            ApiKey.LEAVE_GROUP: range(6),
            ApiKey.SYNC_GROUP: range(6),
            ApiKey.DESCRIBE_GROUPS: range(7),
            ApiKey.LIST_GROUPS: range(6),
            ApiKey.DELETE_GROUPS: range(3),
            ApiKey.OFFSET_DELETE: range(1),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: range(2),
            ApiKey.CONSUMER_GROUP_DESCRIBE: range(2),
        },
        "transactions": {
            ApiKey.INIT_PRODUCER_ID: range(7),
            ApiKey.ADD_PARTITIONS_TO_TXN: range(6),
            ApiKey.ADD_OFFSETS_TO_TXN: range(5),
            ApiKey.END_TXN: range(6),
            ApiKey.WRITE_TXN_MARKERS: range(1, 3),
            ApiKey.TXN_OFFSET_COMMIT: range(6),
            ApiKey.DESCRIBE_PRODUCERS: range(1),
            ApiKey.DESCRIBE_TRANSACTIONS: range(1),
            ApiKey.LIST_TRANSACTIONS: range(3),
        },
        "admin": {
            ApiKey.CREATE_TOPICS: range(2, 8),
            ApiKey.DELETE_TOPICS: range(1, 7),
            ApiKey.DESCRIBE_CONFIGS: range(1, 5),
            ApiKey.ALTER_CONFIGS: range(3),
            ApiKey.DESCRIBE_LOG_DIRS: range(1, 5),
            ApiKey.CREATE_PARTITIONS: range(4),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
            ApiKey.ELECT_LEADERS: range(3),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: range(2),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: range(1),
            ApiKey.LIST_CONFIG_RESOURCES: range(2),
            ApiKey.DESCRIBE_ACLS: range(1, 4),
            ApiKey.CREATE_ACLS: range(1, 4),
            ApiKey.DELETE_ACLS: range(1, 4),
            ApiKey.DESCRIBE_CLIENT_QUOTAS: range(2),
            ApiKey.ALTER_CLIENT_QUOTAS: range(2),
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: range(1),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: range(1),
        },
        "cluster": {
            ApiKey.METADATA: range(13),
            ApiKey.SASL_HANDSHAKE: range(2),
            ApiKey.API_VERSIONS: range(5),
            ApiKey.SASL_AUTHENTICATE: range(3),
            ApiKey.ALTER_PARTITION: range(2, 4),
            ApiKey.DESCRIBE_CLUSTER: range(2),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: range(1),
        },
    }
)
_PACKAGES = MappingProxyType(
    {key: name for name, apis in _SERVED_BY_PACKAGE.items() for key in apis}
)
SERVED: Mapping[ApiKey, range] = MappingProxyType(
    dict(sorted(item for apis in _SERVED_BY_PACKAGE.values() for item in apis.items()))
)

# Supported levels; the last is finalized: clients with transactions v2 use it (KIP-890).
FEATURES: Mapping[str, range] = MappingProxyType({"transaction.version": range(3)})


class ApiTable(Mapping[ApiKey, Api]):
    """Loads each API on its first use."""

    def __init__(self, served: Mapping[ApiKey, range]) -> None:
        self._served = served
        self._loaded: dict[ApiKey, Api] = {}

    def __getitem__(self, key: ApiKey) -> Api:
        api = self._loaded.get(key)
        if api is None:
            api = self._loaded[key] = self._load(key, self._served[key])
        return api

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def _load(self, key: ApiKey, versions: range) -> Api:
        if key is ApiKey.API_VERSIONS:
            return make_api(self._served, FEATURES)
        name = key.name.lower()
        api: Api = import_module(f"penstock.apis.{_PACKAGES[key]}.{name}").API
        mismatch = f"{name}.py serves {api.key.title} {api.versions}, the table says {versions}"
        assert (api.key, api.versions) == (key, versions), mismatch
        return api


APIS: Mapping[ApiKey, Api] = ApiTable(SERVED)
