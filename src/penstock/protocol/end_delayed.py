"""EndDelayed (private key 31011), version 0: a client's request, to bytes and back.

In `protocol` because the client sends it. The payload of the response is a word: cancelled,
delivered or unknown.
"""

from typing import NamedTuple

from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.request_budget import RequestBudget

END_DELAYED_VERSIONS = range(1)


class EndDelayedRequest(NamedTuple):
    topic: str
    delay_id: str
    deliver_now: bool  # else it is cancelled
    timeout_ms: int


def encode_end_delayed(request: EndDelayedRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.string(request.topic)
    writer.string(request.delay_id)
    writer.int8(request.deliver_now)
    writer.int32(request.timeout_ms)
    writer.tags()
    return writer.done()


def decode_end_delayed(body: Buffer, budget: RequestBudget | None = None) -> EndDelayedRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    request = EndDelayedRequest(
        reader.string(), reader.string(), reader.int8() != 0, reader.int32()
    )
    reader.tags()
    reader.end()
    return request
