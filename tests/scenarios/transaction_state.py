"""Writes transaction coordinator state into the data of a stopped broker.

Its transaction topic must have one partition.
"""

from pathlib import Path

from tests.interop.our_logs import OurLogs

from penstock.coordinators.runtime.record_batches import build_batches
from penstock.coordinators.transaction.records import Transaction, TransactionRecord, encode_record

ONE_SHARD = {"transaction.state.log.num.partitions": 1}


def write_state(data: Path, name: str, state: Transaction) -> None:
    """Writes the newest state of this transactional id, whatever was there before."""
    (batch,) = build_batches(
        [TransactionRecord(name, state)],
        encode_record,
        str,
        now_ms=state.updated_ms,
        max_bytes=10_000,
    )
    logs = OurLogs(data)
    log = logs.logs["__transaction_state-0"]
    logs.append(log, batch, leader_epoch=log.latest_epoch)
    logs.close()
