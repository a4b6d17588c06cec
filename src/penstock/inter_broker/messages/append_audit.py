"""AppendAudit (private key 31015), version 0: the body. To bytes and back."""

from typing import NamedTuple

from penstock.protocol.batch import Buffer
from penstock.protocol.coordinator_values import ValueReader, ValueWriter
from penstock.protocol.request_budget import RequestBudget

APPEND_AUDIT_VERSIONS = range(1)


class AppendAuditRequest(NamedTuple):
    partition: int  # of __penstock_audit
    timeout_ms: int
    batch: bytes


def encode_append_audit(request: AppendAuditRequest) -> bytes:
    writer = ValueWriter(flexible=True)
    writer.int32(request.partition)
    writer.int32(request.timeout_ms)
    writer.data(request.batch)
    writer.tags()
    return writer.done()


def decode_append_audit(body: Buffer, budget: RequestBudget | None = None) -> AppendAuditRequest:
    reader = ValueReader(body, flexible=True, budget=budget)
    partition, timeout_ms, batch = reader.int32(), reader.int32(), reader.data()
    reader.tags()
    reader.end()
    return AppendAuditRequest(partition, timeout_ms, batch)
