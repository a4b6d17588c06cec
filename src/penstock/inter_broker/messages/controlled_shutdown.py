"""ControlledShutdown (private key 31002), version 0: the request body, to bytes and back."""

from typing import NamedTuple

from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.request_budget import RequestBudget

CONTROLLED_SHUTDOWN_VERSIONS = range(1)


class ControlledShutdownRequest(NamedTuple):
    broker: BrokerId
    broker_epoch: BrokerEpoch
    timeout_ms: int


def encode_controlled_shutdown(request: ControlledShutdownRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.broker)
    writer.int64(request.broker_epoch)
    writer.int32(request.timeout_ms)
    writer.tags()
    return writer.done()


def decode_controlled_shutdown(
    body: Buffer, budget: RequestBudget | None = None
) -> ControlledShutdownRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = ControlledShutdownRequest(
        BrokerId(reader.int32()), BrokerEpoch(reader.int64()), reader.int32()
    )
    reader.tags()
    reader.end()
    return request
