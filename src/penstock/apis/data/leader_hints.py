"""The current leader of a partition, sent with a refusal (KIP-951): saves a metadata request.

Taken from the metadata cache, and encoded by position like the responses that carry it.
"""

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from penstock.apis.api import Request
from penstock.apis.cluster.listener_addresses import broker_address
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicPartition
from penstock.protocol.unsigned_varint import encode_unsigned_varint

if TYPE_CHECKING:
    from penstock.apis.services import Services

_LEADER = struct.Struct(">BBiiB")  # tag, size, leader, epoch, no tags
_LEADER_BYTES = 9
_INT32 = struct.Struct(">i")
NO_TAGS = b"\0"


class LeaderHint(NamedTuple):
    leader: BrokerId
    leader_epoch: LeaderEpoch


class HintedBroker(NamedTuple):
    id: BrokerId
    host: str
    port: int
    rack: str | None


NO_HINT = LeaderHint(NO_BROKER, NO_LEADER_EPOCH)


def find_leader_hint(services: "Services", tp: TopicPartition) -> LeaderHint:
    """NO_HINT if the leader is unknown."""
    topic = services.metadata.find_topic(tp.topic)
    if topic is None or not 0 <= tp.partition < len(topic.partitions):
        return NO_HINT
    state = topic.partitions[tp.partition]
    return LeaderHint(state.leader, state.leader_epoch)


def find_nodes(
    request: Request, services: "Services", hints: Iterable[LeaderHint]
) -> list[HintedBroker]:
    """The leaders of the hints, without duplicates, with addresses for this client."""
    nodes: list[HintedBroker] = []
    for leader in dict.fromkeys(hint.leader for hint in hints):
        broker = services.metadata.brokers.get(leader)
        address = None if broker is None else broker_address(broker, request, services)
        if broker is not None and address is not None:
            nodes.append(HintedBroker(leader, *address, broker.rack))
    return nodes


def encode_leader_tags(hint: LeaderHint, tag: int) -> bytes:
    """A partition's tagged fields: the hint under its tag, or none."""
    if hint == NO_HINT:
        return NO_TAGS
    return b"\1" + _LEADER.pack(tag, _LEADER_BYTES, hint.leader, hint.leader_epoch, 0)


def encode_node_tags(nodes: list[HintedBroker]) -> bytes:
    """A response's tagged fields: the nodes under tag 0, or none."""
    if not nodes:
        return NO_TAGS
    pieces = [encode_unsigned_varint(len(nodes) + 1)]
    for node in nodes:
        pieces += (
            _INT32.pack(node.id),
            _compact_text(node.host),
            _INT32.pack(node.port),
            _compact_text(node.rack),
            NO_TAGS,
        )
    encoded = b"".join(pieces)
    return b"\1\0" + encode_unsigned_varint(len(encoded)) + encoded


def _compact_text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return encode_unsigned_varint(len(encoded) + 1) + encoded
