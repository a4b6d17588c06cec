"""The cluster's znodes: Kafka's paths and Kafka's JSON.

Not the access to them. Writers write the newest version of each format. Readers accept older ones,
ignore unknown fields, and raise DamagedZnode if a field that they need is missing.
"""

import json
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

from penstock.metadata_store.errors import DamagedZnode
from penstock.metadata_store.interface import Value
from penstock.model.broker_report import NO_LOG, BrokerReport, LogPosition, ReportedReplica
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    Endpoint,
    PartitionState,
)
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
BROKER_REPORTS = "/brokers/penstock_reports"
TOPICS = "/brokers/topics"
DELETIONS = "/admin/delete_topics"
REASSIGNMENTS = "/admin/reassign_partitions"
ELECTIONS = "/admin/preferred_replica_election"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"  # notifications of Kafka's tools
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"  # without its number
CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/latest_producer_id_block"

ALL_BROKERS = "<default>"  # the name of the znode with the configs of all brokers

# The znodes of every cluster, parents first.
PERSISTENT_ZNODES = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/admin",
    DELETIONS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    USER_CONFIGS,
    CLIENT_CONFIGS,
    IP_CONFIGS,
    CONFIG_CHANGES,
)

_ENDPOINT = re.compile(r"([^:/]+)://\[?([^\[\]]*)\]?:(-?[0-9]+)")


def broker_path(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def report_path(broker: int) -> str:
    return f"{BROKER_REPORTS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def deletion_path(topic: str) -> str:
    return f"{DELETIONS}/{topic}"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: str) -> str:
    """`broker` is an id as text; empty means all brokers."""
    return f"{BROKER_CONFIGS}/{broker or ALL_BROKERS}"


def group_config_path(group: str) -> str:
    """A group's id is any text, so it is quoted; dots too, because `.` and `..` are no names."""
    return f"{GROUP_CONFIGS}/{quote(group, safe='').replace('.', '%2E')}"


def quote_entity(name: str) -> str:
    """The znode of a user, client id or address: as Java's URLEncoder with Kafka's two changes, a
    blank is %20, and * is %2A. A name of dots only is quoted, too, because it is no znode's."""
    quoted = quote(name, safe="").replace("~", "%7E")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def group_of_config(name: str) -> str:
    """The group whose configs the znode of this name has."""
    return unquote(name)


# Brokers.


def encode_broker(node: BrokerNode, *, now_ms: int) -> bytes:
    plaintext = next(
        (endpoint for endpoint in node.endpoints if endpoint.protocol == "PLAINTEXT"), None
    )
    fields: dict[str, Any] = {
        "version": 5,
        "host": plaintext.host if plaintext else None,
        "port": plaintext.port if plaintext else -1,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [_format_endpoint(endpoint) for endpoint in node.endpoints],
        "listener_security_protocol_map": {e.listener: e.protocol for e in node.endpoints},
        "features": {},
    }
    if node.rack is not None:
        fields["rack"] = node.rack
    return _write(fields)


def decode_broker(broker: BrokerId, value: Value) -> BrokerNode:
    node = _Reader(broker_path(broker), value.data)
    return BrokerNode(
        id=broker,
        epoch=BrokerEpoch(value.stat.czxid),
        endpoints=tuple(_endpoints(node)),
        rack=node.find("rack", str),
    )


def _format_endpoint(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _endpoints(node: "_Reader") -> Iterable[Endpoint]:
    texts = node.find("endpoints", list)
    if texts is None:  # version 1
        yield Endpoint("PLAINTEXT", "PLAINTEXT", node.get("host", str), node.get("port", int))
        return
    protocols = node.find("listener_security_protocol_map", dict) or {}
    for text in texts:
        match = _ENDPOINT.fullmatch(str(text))
        if match is None:
            raise node.damaged(f"endpoint {text!r} is not NAME://host:port")
        name, host, port = match.groups()
        yield Endpoint(name, str(protocols.get(name, name)), host, int(port))


# Broker reports, which Kafka has not. Grouped by topic: an empty disk lists every replica. A large
# one is compressed: as JSON, 12,000 topics with one partition fill a request of the store.

_MAX_PLAIN_REPORT_BYTES = 1 << 18
_MAX_REPORT_BYTES = 1 << 26  # decompressed, far more than what fits into a request


def encode_report(report: BrokerReport) -> bytes:
    topics: dict[str, dict[str, Any]] = {}
    for tp, (topic_id, position) in report.replicas.items():
        fields = topics.setdefault(
            tp.topic, {"topic_id": format_uuid(topic_id), "missing": [], "short": {}}
        )
        if position == NO_LOG:
            fields["missing"].append(tp.partition)
        else:
            fields["short"][str(tp.partition)] = list(position)
    data = _write({"version": 1, "incarnation": report.incarnation, "incomplete": topics})
    return data if len(data) <= _MAX_PLAIN_REPORT_BYTES else zlib.compress(data, level=1)


def decode_report(broker: int, value: Value) -> BrokerReport:
    node = _Reader(report_path(broker), _decompress_report(broker, value.data))
    replicas: dict[TopicPartition, ReportedReplica] = {}
    for topic, fields in node.get("incomplete", dict).items():
        try:
            replicas.update(_reported_replicas(topic, fields))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise node.damaged(f"the replicas of {topic} are {fields!r}") from None
    return BrokerReport(
        incarnation=node.get("incarnation", int), replicas=replicas, version=value.stat.version
    )


def _decompress_report(broker: int, data: bytes) -> bytes:
    if data.startswith(b"{"):
        return data
    try:
        return zlib.decompressobj().decompress(data, _MAX_REPORT_BYTES)
    except zlib.error as error:
        why = f"its {len(data)} bytes are neither JSON nor compressed ({error})"
        raise DamagedZnode(report_path(broker), why) from None


def _reported_replicas(
    topic: str, fields: Mapping[str, Any]
) -> Iterable[tuple[TopicPartition, ReportedReplica]]:
    topic_id = TopicId(parse_uuid(fields["topic_id"]))
    for partition in fields["missing"]:
        yield TopicPartition(topic, int(partition)), ReportedReplica(topic_id, NO_LOG)
    for partition, (epoch, end_offset) in fields["short"].items():
        position = LogPosition(LeaderEpoch(int(epoch)), Offset(int(end_offset)))
        yield TopicPartition(topic, int(partition)), ReportedReplica(topic_id, position)


# Topics.


class TopicZnode(NamedTuple):
    """A topic's znode: the replicas of each partition."""

    topic_id: TopicId | None  # None: created by a Kafka without topic ids
    replicas: Mapping[int, tuple[BrokerId, ...]]
    adding: Mapping[int, tuple[BrokerId, ...]]
    removing: Mapping[int, tuple[BrokerId, ...]]


def encode_topic(topic_id: TopicId, partitions: Iterable[PartitionState]) -> bytes:
    numbered = [(str(number), partition) for number, partition in enumerate(partitions)]
    return _write(
        {
            "version": 3,
            "topic_id": format_uuid(topic_id),
            "partitions": {number: partition.replicas for number, partition in numbered},
            "adding_replicas": {
                n: partition.adding for n, partition in numbered if partition.adding
            },
            "removing_replicas": {
                n: partition.removing for n, partition in numbered if partition.removing
            },
        }
    )


def decode_topic(topic: str, data: bytes) -> TopicZnode:
    node = _Reader(topic_path(topic), data)
    text = node.find("topic_id", str)
    try:
        topic_id = None if text is None else TopicId(parse_uuid(text))
    except ValueError:
        raise node.damaged(f"topic_id {text!r} is not 22 characters of base64") from None
    replicas = _assignment(node, "partitions")
    if not replicas or sorted(replicas) != list(range(len(replicas))):
        raise node.damaged(f"its partitions {sorted(replicas)[:20]} do not count up from 0")
    if not all(replicas.values()):
        raise node.damaged("one of its partitions has no replica")
    if any(min(ids) < 0 or len(set(ids)) != len(ids) for ids in replicas.values()):
        raise node.damaged("one of its partitions has a broker twice, or one below 0")
    adding, removing = _assignment(node, "adding_replicas"), _assignment(node, "removing_replicas")
    return TopicZnode(topic_id, replicas, adding, removing)


def _assignment(node: "_Reader", name: str) -> dict[int, tuple[BrokerId, ...]]:
    try:
        return {
            int(number): tuple(BrokerId(int(broker)) for broker in brokers)
            for number, brokers in (node.find(name, dict) or {}).items()
        }
    except (TypeError, ValueError):
        raise node.damaged(f"{name} must map partition numbers to lists of broker ids") from None


def encode_state(state: PartitionState) -> bytes:
    # Formatted by hand: this runs once for every partition of the cluster.
    in_sync = ",".join(map(str, state.in_sync))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{in_sync}]}}'
    ).encode()


def decode_state(
    path: str,
    value: Value,
    *,
    replicas: tuple[BrokerId, ...],
    adding: tuple[BrokerId, ...] = (),
    removing: tuple[BrokerId, ...] = (),
) -> PartitionState:
    """The assignment comes from the topic's znode."""
    node = _Reader(path, value.data)
    return PartitionState(
        leader=BrokerId(node.get("leader", int)),
        leader_epoch=LeaderEpoch(node.get("leader_epoch", int)),
        replicas=replicas,
        in_sync=tuple(BrokerId(broker) for broker in node.get_numbers("isr")),
        partition_epoch=value.stat.version,
        controller_epoch=ControllerEpoch(node.get("controller_epoch", int)),
        adding=adding,
        removing=removing,
    )


# Requests made by creating a znode.


def decode_reassignments(data: bytes) -> list[tuple[TopicPartition, tuple[BrokerId, ...]]]:
    node = _Reader(REASSIGNMENTS, data)
    return [
        (_partition(node, entry), tuple(BrokerId(broker) for broker in _numbers(node, entry)))
        for entry in node.get("partitions", list)
    ]


def decode_elections(data: bytes) -> list[TopicPartition]:
    node = _Reader(ELECTIONS, data)
    return [_partition(node, entry) for entry in node.get("partitions", list)]


def _partition(node: "_Reader", entry: object) -> TopicPartition:
    if isinstance(entry, dict):
        topic, number = entry.get("topic"), entry.get("partition")
        if isinstance(topic, str) and type(number) is int:
            return TopicPartition(topic, number)
    raise node.damaged(f"{str(entry)[:100]} names no topic and partition")


def _numbers(node: "_Reader", entry: Mapping[str, object]) -> list[int]:
    numbers = entry.get("replicas")
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise node.damaged(f"{str(entry)[:100]} has no list of brokers as its replicas")
    return numbers


# Configs.


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _write({"version": 1, "config": dict(configs)})


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    node = _Reader(path, data)
    configs = node.find_any("config")
    if not isinstance(configs, dict | None):
        raise node.damaged("its config is not a JSON object")
    return {name: _config_text(node, name, value) for name, value in (configs or {}).items()}


def _config_text(node: "_Reader", name: str, value: object) -> str:
    """Text, or a number or a boolean as somebody may write it by hand. No value is quoted in an
    error, because it may be a secret."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise node.damaged(f"the value of {name[:100]!r} is not text")


def encode_config_change(path: str) -> bytes:
    """The notification that the configs in the znode have changed."""
    fields = {"version": 2, "entity_path": path.removeprefix("/config/")}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_config_change(path: str, data: bytes) -> str:
    """The path of the changed config znode, out of a notification of version 1 or 2."""
    node = _Reader(path, data)
    version = node.get("version", int)
    if version == 1:
        kind, name = node.get("entity_type", str), node.get("entity_name", str)
        return f"/config/{kind}/{name}"
    if version == 2:
        return f"/config/{node.get('entity_path', str)}"
    raise node.damaged(f"its version is {version}, not 1 or 2")


# Controller, cluster id and producer ids.


def encode_controller(broker: BrokerId, *, now_ms: int) -> bytes:
    return _write({"version": 1, "brokerid": broker, "timestamp": str(now_ms)})


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(_Reader(CONTROLLER, data).get("brokerid", int))


def encode_cluster_id(cluster_id: str) -> bytes:
    return _write({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_Reader(CLUSTER_ID, data).get("id", str))


def encode_producer_block(broker: BrokerId, *, first: int, last: int) -> bytes:
    return _write(
        {"version": 1, "broker": broker, "block_start": str(first), "block_end": str(last)}
    )


def decode_last_producer_id(data: bytes) -> int:
    """The last id allocated to any broker; -1 if none was."""
    if not data:  # Kafka creates the znode before it allocates a block
        return -1
    node = _Reader(PRODUCER_IDS, data)
    try:
        return int(node.get("block_end", str))
    except ValueError:
        raise node.damaged("block_end is not a number") from None


def format_uuid(uuid: UUID) -> str:
    """Kafka's text of an id: 22 characters."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    if len(text) != 22:
        raise ValueError(text)
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def _write(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


class _Reader:
    """The fields of one znode."""

    __slots__ = ("_fields", "_path")

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        try:
            self._fields = json.loads(data)
        except ValueError as error:
            raise self.damaged(f"its {len(data)} bytes are not JSON ({error})") from None
        if not isinstance(self._fields, dict):
            raise self.damaged("it is JSON, but not an object")

    def find_any(self, name: str) -> object:
        return self._fields.get(name)

    def find(self, name: str, kind: type) -> Any:
        value = self._fields.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise self.damaged(f"{name} is {value!r}, not of type {kind.__name__}")
        return value

    def get(self, name: str, kind: type) -> Any:
        value = self.find(name, kind)
        if value is None:
            raise self.damaged(f"it has no {name}")
        return value

    def get_numbers(self, name: str) -> list[int]:
        numbers: list[int] = self.get(name, list)
        if not all(type(number) is int for number in numbers):
            raise self.damaged(f"{name} is {numbers!r}, not a list of numbers")
        return numbers

    def damaged(self, why: str) -> DamagedZnode:
        return DamagedZnode(self._path, why)
