"""RefusedBatch (private key 31005), version 0: the request body, to bytes and back."""

from typing import NamedTuple

from penstock.model.cluster import BrokerId
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.private_response import read_topic_partition, write_topic_partition
from penstock.protocol.request_budget import RequestBudget

REFUSED_BATCH_VERSIONS = range(1)


class RefusedBatchRequest(NamedTuple):
    broker: BrokerId  # the follower
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    offset: Offset  # of the fetch whose records it refused


def encode_refused_batch(request: RefusedBatchRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.broker)
    write_topic_partition(writer, request.tp)
    writer.int32(request.leader_epoch)
    writer.int64(request.offset)
    writer.tags()
    return writer.done()


def decode_refused_batch(body: Buffer, budget: RequestBudget | None = None) -> RefusedBatchRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = RefusedBatchRequest(
        BrokerId(reader.int32()),
        read_topic_partition(reader),
        LeaderEpoch(reader.int32()),
        Offset(reader.int64()),
    )
    reader.tags()
    reader.end()
    return request
