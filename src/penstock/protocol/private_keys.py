"""Requests that Penstock's brokers send each other and nobody else: docs/inter_broker.md has them.

Their keys lie above all of Kafka's. They are served on the inter-broker listener alone and are not
told by ApiVersions: a broker that is asked in a version that it does not know names those it does.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from penstock.protocol.api_keys import FIRST_FLEXIBLE_VERSIONS


class PrivateKey(IntEnum):
    BROKER_ORDER = 31_001  # the controller tells a broker what to do
    BROKER_LEAVES = 31_002  # a broker asks the controller to move what it leads elsewhere
    FORWARDED_CONFIGS = 31_003  # settings that were changed at a broker that is not the controller
    REPLICAS_FAILED = 31_004  # a broker's replicas whose log takes nothing any more

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


# All versions of private requests are flexible: header v2, and tags wherever a structure ends.
FIRST_FLEXIBLE_OF_ALL: Mapping[int, int] = MappingProxyType(
    {**FIRST_FLEXIBLE_VERSIONS, **{key.value: 0 for key in PrivateKey}}
)


def find_private_key(key: int) -> PrivateKey | None:
    return _BY_KEY.get(key)


_BY_KEY: Mapping[int, PrivateKey] = MappingProxyType({key.value: key for key in PrivateKey})
