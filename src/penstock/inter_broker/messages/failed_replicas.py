"""FailedReplicas (private key 31004), version 0: the request body, to bytes and back."""

from typing import NamedTuple

from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.private_response import read_topic_partition, write_topic_partition
from penstock.protocol.request_budget import RequestBudget

FAILED_REPLICAS_VERSIONS = range(1)
_DAMAGED_TAG = 0


class FailedReplicasRequest(NamedTuple):
    broker: BrokerId
    broker_epoch: BrokerEpoch
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    is_damaged: bool = False  # they are led here, and readable but for some batches


def encode_failed_replicas(request: FailedReplicasRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.broker)
    writer.int64(request.broker_epoch)
    writer.int32(request.timeout_ms)
    writer.array(request.partitions, write_topic_partition)
    writer.tags(*([(_DAMAGED_TAG, b"\1")] if request.is_damaged else []))
    return writer.done()


def decode_failed_replicas(
    body: Buffer, budget: RequestBudget | None = None
) -> FailedReplicasRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = FailedReplicasRequest(
        BrokerId(reader.int32()),
        BrokerEpoch(reader.int64()),
        reader.int32(),
        tuple(reader.array(read_topic_partition)),
    )
    tagged = reader.tags()
    reader.end()
    return request._replace(is_damaged=_DAMAGED_TAG in tagged)
