"""Keys of the private requests of Penstock's brokers (docs/inter_broker.md).

They lie above all of Kafka's keys, and ApiVersions does not list them: a broker asked in an unknown
version responds with the versions it supports. Brokers send them on the inter-broker listener only;
those of `CLIENT_KEYS` are for clients, on every listener.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from penstock.protocol.api_keys import FIRST_FLEXIBLE_VERSIONS


class PrivateKey(IntEnum):
    CONTROLLER_REQUEST = 31_001  # LeaderAndIsr, StopReplica or UpdateMetadata, to any broker
    CONTROLLED_SHUTDOWN = 31_002  # a stopping broker asks the controller to move its leaderships
    FORWARDED_CONFIGS = 31_003  # config changes received by a broker that is not the controller
    FAILED_REPLICAS = 31_004  # replicas of a broker whose log has failed, or is damaged
    REFUSED_BATCH = 31_005  # a follower cannot append what it fetched from this leader
    DESCRIBE_METRICS = 31_006  # the metrics of a broker, for commands and consoles
    DESCRIBE_REPLICAS = 31_007  # a broker's replicas of some partitions, for the same
    DEFER_MESSAGES = 31_008  # messages that wait, to the leader of their shard
    END_DEFERRED = 31_009  # cancel one of them, or make it due now; to the same
    APPEND_DEFERRED = 31_010  # messages that have waited, to the leader of their target
    END_DELAYED = 31_011  # END_DEFERRED of a client, by topic and delay id, to any broker
    DESCRIBE_OFFSET_TIMES = 31_012  # when records at some offsets were written, for commands
    HALF_INTAKE = 31_013  # halves or decisions that were read, to the leader of their shard
    HALF_ENDS = 31_014  # the ends of half topics, from their leaders
    APPEND_AUDIT = 31_015  # audit events, to the leader of a partition of their topic

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


CLIENT_KEYS = frozenset(
    {
        PrivateKey.DESCRIBE_METRICS,
        PrivateKey.DESCRIBE_REPLICAS,
        PrivateKey.END_DELAYED,
        PrivateKey.DESCRIBE_OFFSET_TIMES,
    }
)

# All versions of private requests are flexible: request header v2, tagged fields in every struct.
FIRST_FLEXIBLE_OF_ALL: Mapping[int, int] = MappingProxyType(
    {**FIRST_FLEXIBLE_VERSIONS, **{key.value: 0 for key in PrivateKey}}
)


def find_private_key(key: int) -> PrivateKey | None:
    return _BY_KEY.get(key)


_BY_KEY: Mapping[int, PrivateKey] = MappingProxyType({key.value: key for key in PrivateKey})
