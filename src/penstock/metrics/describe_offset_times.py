"""DescribeOffsetTimes (private key 31012), version 0: when the records at offsets were written.

Served on every listener, so that commands can tell the time lag of a group, whichever broker
coordinates it: each leader reads its own logs. Left out are partitions that this broker does not
lead, offsets that consumers do not see yet, records without a timestamp, and topics that the caller
may not describe. The look-ups take turns with other work.
"""

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Api, Request
from penstock.apis.private_responses import respond_payload, respond_refusal, respond_unsupported
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import Offset
from penstock.protocol.describe_offset_times import (
    DESCRIBE_OFFSET_TIMES_VERSIONS,
    MAX_OFFSETS,
    OffsetTime,
    OffsetTimes,
    WantedTime,
    decode_describe_offset_times,
    encode_offset_times,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.request_budget import RequestBudget
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services

SLICE_S = 0.001  # of look-ups between two turns of the loop


def _answer(request: Request, services: "Services") -> Any:
    wanted: list[WantedTime] = request.message
    if len(wanted) > MAX_OFFSETS:
        message = f"at most {MAX_OFFSETS} offsets in a request, not {len(wanted)}"
        refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
        return respond_refusal(refusal, DESCRIBE_OFFSET_TIMES_VERSIONS)
    topics = {tp.topic for tp, _ in wanted}
    allowed = {
        topic
        for topic in topics
        if allows_topic(request, services, AclOperation.DESCRIBE, topic, shows=True)
    }
    return _describe([one for one in wanted if one.tp.topic in allowed], services)


async def _describe(wanted: list[WantedTime], services: "Services") -> list[Any]:
    times: list[OffsetTime] = []
    began_s = perf_counter()
    for tp, offset in wanted:
        partition = services.replicas.find(tp)
        if partition is not None and partition.is_leader:
            timestamp_ms = partition.find_time_of(Offset(offset))
            if timestamp_ms is not None:
                times.append(OffsetTime(tp, timestamp_ms))
        if perf_counter() - began_s > SLICE_S:
            await asyncio.sleep(0)
            began_s = perf_counter()
    payload = encode_offset_times(OffsetTimes(services.wall_ms(), tuple(times)))
    return respond_payload([payload], DESCRIBE_OFFSET_TIMES_VERSIONS)


def _read(body: memoryview, version: int, budget: RequestBudget) -> list[WantedTime]:
    return decode_describe_offset_times(body, budget)


API = Api(
    key=PrivateKey.DESCRIBE_OFFSET_TIMES,
    versions=DESCRIBE_OFFSET_TIMES_VERSIONS,
    answer=_answer,
    read=_read,
    unsupported=respond_unsupported(DESCRIBE_OFFSET_TIMES_VERSIONS),
)
