"""Latency of LeaveGroup: bare requests over one connection."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from bench.broker.starting import TOPIC
from bench.broker.wire import Wire
from penstock.client.call import compose
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.coordinator_values import ValueWriter
from penstock.protocol.messages import get_request_schema

JOIN_VERSION, SYNC_VERSION, LEAVE_VERSION = 5, 3, 3
SESSION = timedelta(seconds=30)


def measure_leave(bootstrap: str, group: str) -> float:
    """Milliseconds, for the last member of a stable group."""
    wire = Wire(bootstrap)
    member = _join(wire, group)
    fields = {"group_id": group, "members": [{"member_id": member}]}
    request = compose(get_request_schema(ApiKey.LEAVE_GROUP, LEAVE_VERSION), fields)
    start = time.perf_counter()
    answer = wire.ask(request)
    milliseconds = (time.perf_counter() - start) * 1000
    wire.close()
    _check(answer)
    _check(answer.members[0])
    return milliseconds


def _join(wire: Wire, group: str) -> str:
    """Joins as the only member, which is therefore the leader and assigns."""
    fields = {
        "group_id": group,
        "session_timeout": SESSION,
        "rebalance_timeout": SESSION,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": _subscription()}],
        "member_id": "",
    }
    schema = get_request_schema(ApiKey.JOIN_GROUP, JOIN_VERSION)
    named = wire.ask(compose(schema, fields))  # MEMBER_ID_REQUIRED with a member id (KIP-394)
    joined = wire.ask(compose(schema, fields | {"member_id": named.member_id}))
    _check(joined)
    member = str(joined.member_id)
    assignments = [{"member_id": member, "assignment": _assignment()}]
    synced = wire.ask(
        compose(
            get_request_schema(ApiKey.SYNC_GROUP, SYNC_VERSION),
            {
                "group_id": group,
                "generation_id": joined.generation_id,
                "member_id": member,
                "assignments": assignments,
            },
        )
    )
    _check(synced)
    return member


def _subscription() -> bytes:
    writer = ValueWriter(flexible=False)
    writer.int16(0)
    writer.array([TOPIC], ValueWriter.string)
    writer.data(b"")
    return writer.done()


def _assignment() -> bytes:
    writer = ValueWriter(flexible=False)
    writer.int16(0)
    writer.array([TOPIC], _write_first_partition)
    writer.data(b"")
    return writer.done()


def _write_first_partition(writer: ValueWriter, topic: str) -> None:
    writer.string(topic)
    writer.array([0], ValueWriter.int32)


def _check(answer: Any) -> None:
    code = get_error(answer.error_code.value)
    if code is not ErrorCode.NONE:
        raise RuntimeError(f"the coordinator answered {code.name}")
