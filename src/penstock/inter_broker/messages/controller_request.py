"""ControllerRequest (private key 31001), version 0: the request body, to bytes and back.

Lengths are compact and every struct ends with tagged fields, so that a later broker can add fields
that an earlier one skips. Invariant: decoding returns a whole request or raises MalformedMessage.
docs/inter_broker.md has the layout.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
    Endpoint,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    RequestPart,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader, ValueWriter
from penstock.protocol.private_response import read_topic_partition, write_topic_partition
from penstock.protocol.request_budget import RequestBudget

CONTROLLER_REQUEST_VERSIONS = range(1)

_LEADER_AND_ISR = 0
_STOP_REPLICA = 1
_UPDATE_METADATA = 2
_FAILED_REPLICAS_TAG = 0
_GROUP_CONFIGS_TAG = 1
_PART_TAG = 2


def encode_controller_request(request: ControllerRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int64(request.broker_epoch)
    body = request.body
    writer.int32(body.controller_id)
    writer.int32(body.controller_epoch)
    writer.int64(request.number)
    match body:
        case LeaderAndIsrRequest():
            writer.int8(_LEADER_AND_ISR)
            writer.array(body.partitions, _write_leader_and_isr_partition)
        case StopReplicaRequest():
            writer.int8(_STOP_REPLICA)
            writer.array(body.partitions, write_topic_partition)
            _write_bool(writer, body.delete)
        case UpdateMetadataRequest():
            writer.int8(_UPDATE_METADATA)
            _write_update(writer, body)
    writer.tags(*_tagged(body), *_tagged_part(request.part))
    return writer.done()


def decode_controller_request(
    body: Buffer, budget: RequestBudget | None = None
) -> ControllerRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    head = _Head(
        BrokerEpoch(reader.int64()), BrokerId(reader.int32()), ControllerEpoch(reader.int32())
    )
    number = reader.int64()
    kind = reader.int8()
    read = _READERS.get(kind)
    if read is None:
        raise MalformedRecord(f"unknown controller request kind {kind}")
    untagged = read(reader, head)
    tagged = reader.tags()
    request_body = _with_tagged(untagged, tagged, budget)
    reader.end()
    return ControllerRequest(head.broker_epoch, request_body, number, _read_part(tagged))


class _Head(NamedTuple):
    broker_epoch: BrokerEpoch
    controller_id: BrokerId
    controller_epoch: ControllerEpoch


def _read_leader_and_isr(reader: ValueReader, head: _Head) -> ControllerRequestBody:
    return LeaderAndIsrRequest(
        controller_id=head.controller_id,
        controller_epoch=head.controller_epoch,
        broker_epoch=head.broker_epoch,
        partitions=tuple(reader.array(_read_leader_and_isr_partition)),
    )


def _read_stop_replica(reader: ValueReader, head: _Head) -> ControllerRequestBody:
    return StopReplicaRequest(
        controller_id=head.controller_id,
        controller_epoch=head.controller_epoch,
        broker_epoch=head.broker_epoch,
        partitions=tuple(reader.array(read_topic_partition)),
        delete=_read_bool(reader),
    )


def _read_update_metadata(reader: ValueReader, head: _Head) -> ControllerRequestBody:
    is_full, has_brokers, has_configs = (_read_bool(reader) for _ in range(3))
    brokers = reader.array(_read_broker)
    topics = reader.array(_read_topic)
    deleted = reader.array(ValueReader.string)
    configs = reader.array(_read_named_configs)
    return UpdateMetadataRequest(
        controller_id=head.controller_id,
        controller_epoch=head.controller_epoch,
        is_full=is_full,
        brokers=tuple(brokers) if has_brokers else None,
        topics=tuple(topics),
        deleted_topics=tuple(deleted),
        broker_configs=dict(configs) if has_configs else None,
    )


_READERS: Mapping[int, Callable[[ValueReader, _Head], ControllerRequestBody]] = MappingProxyType(
    {
        _LEADER_AND_ISR: _read_leader_and_isr,
        _STOP_REPLICA: _read_stop_replica,
        _UPDATE_METADATA: _read_update_metadata,
    }
)


def _write_update(writer: ValueWriter, update: UpdateMetadataRequest) -> None:
    for flag in (
        update.is_full,
        update.brokers is not None,
        update.broker_configs is not None,
    ):
        _write_bool(writer, flag)
    writer.array(update.brokers or (), _write_broker)
    writer.array(update.topics, _write_topic)
    writer.array(update.deleted_topics, ValueWriter.string)
    writer.array(tuple((update.broker_configs or {}).items()), _write_named_configs)


# Tagged fields of UpdateMetadata.


def _tagged(body: ControllerRequestBody) -> tuple[tuple[int, bytes], ...]:
    if not isinstance(body, UpdateMetadataRequest):
        return ()
    tagged: list[tuple[int, bytes]] = []
    if body.failed is not None:
        writer = ValueWriter(flexible=True)
        writer.array(tuple(body.failed.items()), _write_failed_replicas)
        tagged.append((_FAILED_REPLICAS_TAG, writer.done()))
    if body.group_configs is not None:
        writer = ValueWriter(flexible=True)
        writer.array(tuple(body.group_configs.items()), _write_named_configs)
        tagged.append((_GROUP_CONFIGS_TAG, writer.done()))
    return tuple(tagged)


def _tagged_part(part: RequestPart) -> tuple[tuple[int, bytes], ...]:
    if part == RequestPart():
        return ()
    writer = ValueWriter(flexible=True)
    writer.int32(part.position)
    _write_bool(writer, part.is_last)
    return ((_PART_TAG, writer.done()),)


def _read_part(tagged: Mapping[int, memoryview]) -> RequestPart:
    if _PART_TAG not in tagged:
        return RequestPart()
    reader = ValueReader(tagged[_PART_TAG], flexible=True)
    part = RequestPart(reader.int32(), _read_bool(reader))
    reader.end()
    return part


def _with_tagged(
    body: ControllerRequestBody, tagged: Mapping[int, memoryview], budget: RequestBudget | None
) -> ControllerRequestBody:
    if not isinstance(body, UpdateMetadataRequest):
        return body
    if _FAILED_REPLICAS_TAG in tagged:
        reader = ValueReader(tagged[_FAILED_REPLICAS_TAG], flexible=True, budget=budget)
        body = replace(body, failed=dict(reader.array(_read_failed_replicas)))
        reader.end()
    if _GROUP_CONFIGS_TAG in tagged:
        reader = ValueReader(tagged[_GROUP_CONFIGS_TAG], flexible=True, budget=budget)
        body = replace(body, group_configs=dict(reader.array(_read_named_configs)))
        reader.end()
    return body


def _write_failed_replicas(
    writer: ValueWriter, failed: tuple[TopicPartition, frozenset[BrokerId]]
) -> None:
    tp, brokers = failed
    _write_tp(writer, tp)
    writer.array(sorted(brokers), ValueWriter.int32)
    writer.tags()


def _read_failed_replicas(reader: ValueReader) -> tuple[TopicPartition, frozenset[BrokerId]]:
    tp = _read_tp(reader)
    brokers = frozenset(map(BrokerId, reader.array(ValueReader.int32)))
    reader.tags()
    return tp, brokers


# Partitions.


def _write_leader_and_isr_partition(writer: ValueWriter, entry: LeaderAndIsrPartition) -> None:
    _write_tp(writer, entry.tp)
    writer.uuid(entry.topic_id)
    _write_state(writer, entry.state)
    _write_bool(writer, entry.is_new)
    writer.tags()


def _read_leader_and_isr_partition(reader: ValueReader) -> LeaderAndIsrPartition:
    tp = _read_tp(reader)
    topic_id = TopicId(reader.uuid())
    entry = LeaderAndIsrPartition(tp, topic_id, _read_state(reader), _read_bool(reader))
    reader.tags()
    return entry


def _write_tp(writer: ValueWriter, tp: TopicPartition) -> None:
    writer.string(tp.topic)
    writer.int32(tp.partition)


def _read_tp(reader: ValueReader) -> TopicPartition:
    return TopicPartition(reader.string(), reader.int32())


def _write_state(writer: ValueWriter, state: PartitionState) -> None:
    writer.int32(state.leader)
    writer.int32(state.leader_epoch)
    writer.int32(state.partition_epoch)
    writer.int32(state.controller_epoch)
    for brokers in (state.replicas, state.in_sync, state.adding, state.removing):
        writer.array(brokers, ValueWriter.int32)
    writer.tags()


def _read_state(reader: ValueReader) -> PartitionState:
    leader, leader_epoch = BrokerId(reader.int32()), LeaderEpoch(reader.int32())
    partition_epoch, controller_epoch = reader.int32(), ControllerEpoch(reader.int32())
    replicas, in_sync, adding, removing = (
        tuple(map(BrokerId, reader.array(ValueReader.int32))) for _ in range(4)
    )
    reader.tags()
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=replicas,
        in_sync=in_sync,
        partition_epoch=partition_epoch,
        controller_epoch=controller_epoch,
        adding=adding,
        removing=removing,
    )


# Topics, brokers and configs.


def _write_topic(writer: ValueWriter, topic: TopicState) -> None:
    writer.string(topic.name)
    writer.uuid(topic.topic_id)
    writer.array(topic.partitions, _write_state)
    _write_configs(writer, topic.configs)
    writer.tags()


def _read_topic(reader: ValueReader) -> TopicState:
    name, topic_id = reader.string(), TopicId(reader.uuid())
    partitions = tuple(reader.array(_read_state))
    topic = TopicState(
        name=name, topic_id=topic_id, partitions=partitions, configs=_read_configs(reader)
    )
    reader.tags()
    return topic


def _write_broker(writer: ValueWriter, node: BrokerNode) -> None:
    writer.int32(node.id)
    writer.int64(node.epoch)
    writer.array(node.endpoints, _write_endpoint)
    writer.string(node.rack)
    writer.tags()


def _read_broker(reader: ValueReader) -> BrokerNode:
    node = BrokerNode(
        id=BrokerId(reader.int32()),
        epoch=BrokerEpoch(reader.int64()),
        endpoints=tuple(reader.array(_read_endpoint)),
        rack=reader.nullable_string(),
    )
    reader.tags()
    return node


def _write_endpoint(writer: ValueWriter, endpoint: Endpoint) -> None:
    for text in (endpoint.listener, endpoint.protocol, endpoint.host):
        writer.string(text)
    writer.int32(endpoint.port)
    writer.tags()


def _read_endpoint(reader: ValueReader) -> Endpoint:
    endpoint = Endpoint(reader.string(), reader.string(), reader.string(), reader.int32())
    reader.tags()
    return endpoint


def _write_named_configs(writer: ValueWriter, named: tuple[str, Mapping[str, str]]) -> None:
    name, configs = named
    writer.string(name)
    _write_configs(writer, configs)
    writer.tags()


def _read_named_configs(reader: ValueReader) -> tuple[str, dict[str, str]]:
    named = reader.string(), _read_configs(reader)
    reader.tags()
    return named


def _write_configs(writer: ValueWriter, configs: Mapping[str, str]) -> None:
    writer.array(tuple(configs.items()), _write_config)


def _read_configs(reader: ValueReader) -> dict[str, str]:
    return dict(reader.array(_read_config))


def _write_config(writer: ValueWriter, config: tuple[str, str]) -> None:
    name, value = config
    writer.string(name)
    writer.string(value)
    writer.tags()


def _read_config(reader: ValueReader) -> tuple[str, str]:
    config = reader.string(), reader.string()
    reader.tags()
    return config


def _write_bool(writer: ValueWriter, flag: bool) -> None:
    writer.int8(int(flag))


def _read_bool(reader: ValueReader) -> bool:
    return reader.int8() != 0
