"""Znodes of a group and of its brokers, with Kafka 0.8.2's names and formats. Pure.

`/consumers/<group>/ids/<consumer>` has a member's subscription, `owners/<topic>/<partition>` the
thread that reads a partition, `offsets/<topic>/<partition>` the next offset as text. Our own field
`assignment` names the rule of a member; other clients ignore it, and a member without it uses
range.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.metadata_store.errors import DamagedZnode
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.topic_filter import TopicFilter, check_regex

CONSUMERS = "/consumers"
BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
MAX_STREAMS = 10_000  # of one registration; more is no number of threads


class AssignmentRule(StrEnum):
    RANGE = "range"
    CEIL_RANGE = "ceil-range"


class SubscriptionPattern(StrEnum):
    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a member reads: topics, or one regex, each with its number of streams."""

    pattern: SubscriptionPattern
    subscription: Mapping[str, int]
    rule: AssignmentRule = AssignmentRule.RANGE
    names_rule: bool = True  # False: a client that is not ours
    with_internal: bool = False  # of our own member alone: it is not written
    timestamp_ms: int = field(default=0, compare=False)

    @property
    def is_static(self) -> bool:
        return self.pattern is SubscriptionPattern.STATIC

    def streams_of(self, topic: str) -> int:
        """How many threads of this member read the topic; 0: none."""
        if self.is_static:
            return self.subscription.get(topic, 0)
        is_black = self.pattern is SubscriptionPattern.BLACK_LIST
        for regex, streams in self.subscription.items():
            if TopicFilter(regex, is_black, self.with_internal).allows(topic):
                return streams
        return 0


def ids_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def member_path(group: str, member: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{member}"


def owners_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/owners"


def owner_path(group: str, tp: TopicPartition) -> str:
    return f"{CONSUMERS}/{group}/owners/{tp.topic}/{tp.partition}"


def offset_path(group: str, tp: TopicPartition) -> str:
    return f"{CONSUMERS}/{group}/offsets/{tp.topic}/{tp.partition}"


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def broker_id_path(broker: str) -> str:
    return f"{BROKER_IDS}/{broker}"


def thread_id(member: str, number: int = 0) -> str:
    return f"{member}-{number}"


def encode_registration(registration: Registration) -> bytes:
    fields = {
        "version": 1,
        "subscription": dict(registration.subscription),
        "pattern": registration.pattern.value,
        "timestamp": str(registration.timestamp_ms),
        "assignment": registration.rule.value,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_registration(path: str, data: bytes) -> Registration:
    """DamagedZnode if it is not a subscription: whoever guesses disagrees with the others."""
    fields = _read_object(path, data)
    try:
        pattern = SubscriptionPattern(fields.get("pattern", "static"))
        rule = AssignmentRule(fields.get("assignment", AssignmentRule.RANGE))
    except ValueError as error:
        raise DamagedZnode(path, str(error)) from error
    subscription = fields.get("subscription")
    if not isinstance(subscription, dict):
        raise DamagedZnode(path, "it has no subscription")
    for name, streams in subscription.items():
        if type(streams) is not int or not 0 < streams <= MAX_STREAMS:
            raise DamagedZnode(path, f"{name!r} has {str(streams)[:20]} streams")
        _check_filter(path, pattern, name)
    return Registration(
        pattern=pattern, subscription=subscription, rule=rule, names_rule="assignment" in fields
    )


def _check_filter(path: str, pattern: SubscriptionPattern, regex: str) -> None:
    if pattern is SubscriptionPattern.STATIC:
        return
    try:
        check_regex(regex, pattern.value)
    except ValueError as error:
        raise DamagedZnode(path, str(error)) from error


def encode_offset(offset: int) -> bytes:
    return str(offset).encode()


def decode_offset(data: bytes) -> int | None:
    """None for what is no offset, as after a reset by hand: the group starts anew there."""
    try:
        offset = int(data)
    except ValueError:
        return None
    return offset if offset >= 0 else None


def decode_partitions(path: str, data: bytes) -> tuple[int, ...]:
    partitions = _read_object(path, data).get("partitions")
    if not isinstance(partitions, dict) or not all(name.isdecimal() for name in partitions):
        raise DamagedZnode(path, "it has no partitions")
    return tuple(sorted(map(int, partitions)))


def decode_broker_address(path: str, data: bytes, protocol: str) -> str | None:
    """The broker's address for this security protocol; None: it has no such listener."""
    fields = _read_object(path, data)
    protocols = fields.get("listener_security_protocol_map") or {}
    for endpoint in fields.get("endpoints") or []:
        listener, _, address = str(endpoint).partition("://")
        if protocols.get(listener, listener) == protocol:
            return address
    if protocol == "PLAINTEXT" and fields.get("host") and fields.get("port", -1) > 0:
        return f"{fields['host']}:{fields['port']}"
    return None


def _read_object(path: str, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise DamagedZnode(path, f"it is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise DamagedZnode(path, "it is not a JSON object")
    return fields
