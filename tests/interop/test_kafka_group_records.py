"""Group records: Kafka's tool reads ours, and we load those that a Kafka broker wrote."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition
from tests.interop.kafka_broker import KafkaBroker, run_java
from tests.interop.kafka_dump import DUMP_CLASS
from tests.interop.kafka_jars import KafkaJars
from tests.interop.our_logs import NOW_MS, OurLogs, read_batches
from tests.profile import is_long
from tests.unit.coordinators.group.test_records import WRITTEN

from penstock.client.admin_values import NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.group_values import CommittedOffset
from penstock.coordinators.group.classic.state import ClassicGroupState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.state import ConsumerGroupState
from penstock.coordinators.group.record_batches import build_batches
from penstock.coordinators.group.record_batches import read_batches as read_entries
from penstock.coordinators.group.records import (
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentMemberValue,
    GroupValue,
    OffsetValue,
    TargetEpochValue,
    TargetMemberValue,
    TopicPartitions,
    Value,
)
from penstock.coordinators.group.state import GroupShardState
from penstock.model.ids import TopicPartition
from penstock.storage.engine import AppendOrigin

pytestmark = pytest.mark.xdist_group("kafka")

FOLDER = "__consumer_offsets-0"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_LINE = re.compile(r"^\| offset: \d+ .* key: (?P<key>\{.*\}) payload: (?P<value>.*)$", re.MULTILINE)


# -- Kafka's tool on our records -----------------------------------------------------------


def test_kafka_reads_our_records_as_we_mean_them(kafka_jars: KafkaJars, tmp_path: Path) -> None:
    records = [record[1] for record in WRITTEN]
    records += [record._replace(value=None) for record in records]
    logs = OurLogs(tmp_path)
    log = logs.create(FOLDER, UUID(int=5))
    for batch in build_batches(records, now_ms=NOW_MS, max_bytes=1_000_000):
        logs.append(log, batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    logs.close()
    (file,) = (tmp_path / FOLDER).glob("*.log")
    shown = run_java(kafka_jars, DUMP_CLASS, "--files", str(file), "--offsets-decoder").out
    pairs = [(match["key"], match["value"]) for match in _LINE.finditer(shown)]
    assert len(pairs) == len(records)
    for record, (key, value) in zip(records, pairs, strict=True):
        assert list(json.loads(key)["data"].values()) == list(record.key)
        if record.value is None:
            assert value == "<DELETE>"
        else:
            assert json.loads(value)["data"] == _as_kafka_shows(record.value)


def _as_kafka_shows(value: Value) -> dict[str, Any]:
    match value:
        case OffsetValue():
            return _offset(value)
        case GroupValue():
            return _group(value)
        case ConsumerMemberValue():
            return _member(value)
        case ConsumerGroupValue():
            return {"epoch": value.epoch}
        case TargetEpochValue():
            return {"assignmentEpoch": value.epoch}
        case TargetMemberValue():
            return {"topicPartitions": _held(value.assigned)}
        case CurrentMemberValue():
            return {
                "memberEpoch": value.epoch,
                "previousMemberEpoch": value.previous_epoch,
                "state": value.state,
                "assignedPartitions": _held(value.assigned),
                "partitionsPendingRevocation": _held(value.pending_revocation),
            }
    raise AssertionError(value)


def _offset(value: OffsetValue) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "offset": value.offset,
        "metadata": value.metadata,
        "commitTimestamp": value.committed_ms,
    }
    if value.expires_ms != -1:
        return {**shown, "expireTimestamp": value.expires_ms}
    return {**shown, "leaderEpoch": value.leader_epoch}


def _group(value: GroupValue) -> dict[str, Any]:
    return {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "currentStateTimestamp": value.state_since_ms,
        "members": [
            {
                "memberId": member.member,
                "groupInstanceId": member.instance,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": b64encode(member.subscription).decode(),
                "assignment": b64encode(member.assignment).decode(),
            }
            for member in value.members
        ],
    }


def _member(value: ConsumerMemberValue) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "instanceId": value.instance,
        "rackId": value.rack,
        "clientId": value.client_id,
        "clientHost": value.client_host,
        "subscribedTopicNames": list(value.topics),
        "subscribedTopicRegex": value.topic_regex,
        "rebalanceTimeoutMs": value.rebalance_timeout_ms,
        "serverAssignor": value.assignor,
    }
    if value.classic is not None:
        shown["classicMemberMetadata"] = {
            "sessionTimeoutMs": value.classic.session_timeout_ms,
            "supportedProtocols": [
                {"name": name, "metadata": b64encode(metadata).decode()}
                for name, metadata in value.classic.protocols
            ],
        }
    return shown


def _held(topics: tuple[TopicPartitions, ...]) -> list[dict[str, Any]]:
    return [
        {
            "topicId": urlsafe_b64encode(topic.topic_id.bytes).rstrip(b"=").decode(),
            "partitions": list(topic.partitions),
        }
        for topic in topics
    ]


# -- what Kafka's broker wrote, loaded by us -----------------------------------------------


@pytest.mark.skipif(not is_long(), reason="starts a Kafka broker; Kafka reads ours in `make test`")
def test_we_load_the_groups_and_offsets_of_a_kafka_broker(
    kafka_jars: KafkaJars, tmp_path: Path
) -> None:
    broker = KafkaBroker(kafka_jars, tmp_path)
    broker.start()
    try:
        asyncio.run(_use_groups(broker.bootstrap))
        members = [
            _be_member(broker.bootstrap, "classic", T0, 3, {}),
            _be_member(broker.bootstrap, "modern", T1, 4, {"group.protocol": "consumer"}),
        ]
    finally:
        broker.kill()  # while the members are still in their groups
    members.clear()
    reports: list[str] = []
    state = _load(tmp_path / "data", reports)
    assert reports == []
    simple = state.offsets.find("simple", T0)
    assert simple is not None
    assert (simple.offset, simple.metadata) == (5, "note")
    assert {tp: value.offset for tp, value in state.offsets.of_group("classic")} == {T0: 3}
    assert {tp: value.offset for tp, value in state.offsets.of_group("modern")} == {T1: 4}
    assert not state.offsets.has_group("deleted")
    classic, modern = state.groups["classic"], state.groups["modern"]
    assert isinstance(classic, ClassicGroupState)
    assert state.describe("classic").state == "Stable"
    assert [client.client_id for client in classic.members.values()] == ["of-classic"]
    assert isinstance(modern, ConsumerGroupState)
    (member,) = modern.members.values()
    assert member.subscription.client_id == "of-modern"
    assert [sorted(partitions) for partitions in member.assigned.values()] == [[0, 1]]


async def _use_groups(bootstrap: str) -> None:
    async with ClusterClient(bootstrap) as client:
        await client.admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=1)])
        await client.groups.commit_offsets("simple", {T0: CommittedOffset(5, -1, "note")})
        await client.groups.commit_offsets("deleted", {T0: CommittedOffset(5)})
        await client.groups.delete("deleted")


def _be_member(
    bootstrap: str, group: str, partition: TopicPartition, offset: int, config: dict[str, str]
) -> Consumer:
    """Joins and commits; the returned member stays in the group as long as the caller keeps it."""
    assigned = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"of-{group}",
            "enable.auto.commit": False,
            **config,
        }
    )
    consumer.subscribe([partition.topic], on_assign=lambda *_: assigned.set())
    for _ in range(300):
        consumer.poll(0.1)
        if assigned.is_set():
            break
    assert assigned.is_set(), f"nothing was assigned to the member of {group}"
    consumer.commit(
        offsets=[TheirPartition(partition.topic, partition.partition, offset)], asynchronous=False
    )
    return consumer


def _load(data: Path, reports: list[str]) -> GroupShardState:
    logs = OurLogs(data)
    state = GroupShardState(topics=_NoTopics(), config=GroupConfig)
    content = b"".join(batch for _, batch in read_batches(logs.logs[FOLDER]))
    for entry in read_entries(content, reports.append):
        state.load(entry)
    logs.close()
    return state


class _NoTopics:
    def find(self, name: str) -> None:
        return None

    def all(self) -> dict[str, Any]:
        return {}

    def find_name(self, topic_id: UUID) -> None:
        return None
