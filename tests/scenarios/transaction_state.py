"""What a coordinator knows, written by hand into the data of a broker that does not run.

Of a broker whose topic of transactions has one partition.
"""

from pathlib import Path

from tests.interop.our_logs import OurLogs

from penstock.coordinators.runtime.record_batches import build_batches
from penstock.coordinators.transaction.records import Transaction, TransactionRecord, encode_record

ONE_SHARD = {"transaction.state.log.num.partitions": 1}


def write_state(data: Path, name: str, state: Transaction) -> None:
    """The last word on this transactional id, whatever its coordinator had said before."""
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
