"""Transaction records: Kafka's tool reads ours, and we load Kafka's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.kafka_broker import KafkaBroker, run_java
from tests.interop.kafka_dump import DUMP_CLASS
from tests.interop.kafka_jars import KafkaJars
from tests.interop.our_logs import NOW_MS, OurLogs, read_batches
from tests.profile import is_long

from penstock.coordinators.runtime.record_batches import build_batches
from penstock.coordinators.transaction.loader import TransactionsLoader
from penstock.coordinators.transaction.records import (
    State,
    Transaction,
    TransactionRecord,
    encode_record,
)
from penstock.coordinators.transaction.state import TransactionShardState
from penstock.model.ids import TopicPartition
from penstock.storage.engine import AppendOrigin

pytestmark = pytest.mark.xdist_group("kafka")

FOLDER = "__transaction_state-0"
_LINE = re.compile(r"^\| offset: \d+ .* key: (?P<key>\{.*\}) payload: (?P<value>.*)$", re.MULTILINE)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

EMPTY = Transaction(producer_id=5, producer_epoch=3, timeout_ms=60_000, updated_ms=NOW_MS)
OURS = [
    EMPTY,
    Transaction(
        producer_id=2**63 - 1,
        producer_epoch=32_767,
        previous_producer_id=4,
        next_producer_id=6,
        last_producer_epoch=32_766,
        next_producer_epoch=7,
        timeout_ms=2**31 - 1,
        state=State.PREPARE_COMMIT,
        partitions=frozenset({T0, T1, U0}),
        updated_ms=NOW_MS,
        started_ms=NOW_MS - 1,
        client_version=2,
    ),
]


# -- Kafka's tool on our records -----------------------------------------------------------


def test_kafka_reads_our_records_as_we_mean_them(kafka_jars: KafkaJars, tmp_path: Path) -> None:
    records = [TransactionRecord(f"id-{index}", value) for index, value in enumerate([*OURS, None])]
    logs = OurLogs(tmp_path)
    log = logs.create(FOLDER, UUID(int=5))
    for batch in build_batches(records, encode_record, str, now_ms=NOW_MS, max_bytes=1_000_000):
        logs.append(log, batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    logs.close()
    (file,) = (tmp_path / FOLDER).glob("*.log")
    shown = run_java(kafka_jars, DUMP_CLASS, "--files", str(file), "--transaction-log-decoder").out
    pairs = [(match["key"], match["value"]) for match in _LINE.finditer(shown)]
    assert len(pairs) == len(records), shown
    for record, (key, value) in zip(records, pairs, strict=True):
        assert json.loads(key)["data"] == {"transactionalId": record.transactional_id}
        if record.value is None:
            assert value == "<DELETE>"
        else:
            assert json.loads(value)["data"] == _as_kafka_shows(record.value)


def _as_kafka_shows(value: Transaction) -> dict[str, Any]:
    """The tool shows only tagged fields that are set, and skips our own."""
    shown: dict[str, Any] = {
        "producerId": value.producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": list(State).index(value.state),
        "transactionPartitions": None if value.state is State.EMPTY else _by_topic(value),
        "transactionLastUpdateTimestampMs": value.updated_ms,
        "transactionStartTimestampMs": value.started_ms,
    }
    if value.client_version:
        shown["clientTransactionVersion"] = value.client_version
    if value.previous_producer_id >= 0:
        shown["previousProducerId"] = value.previous_producer_id
    if value.next_producer_id >= 0:
        shown["nextProducerId"] = value.next_producer_id
    if value.next_producer_epoch > 0:
        shown["nextProducerEpoch"] = value.next_producer_epoch
    return shown


def _by_topic(value: Transaction) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitionIds": numbers} for topic, numbers in topics.items()]


# -- what Kafka's broker wrote, loaded by us -----------------------------------------------


@pytest.mark.skipif(not is_long(), reason="starts a Kafka broker; Kafka reads ours in `make test`")
def test_we_load_the_transactions_of_a_kafka_broker(kafka_jars: KafkaJars, tmp_path: Path) -> None:
    broker = KafkaBroker(kafka_jars, tmp_path)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(180)
        left = [_transact(broker.bootstrap, name) for name in ("committed", "aborted", "open")]
    finally:
        broker.kill()  # while one transaction is still open
    left.clear()
    reports: list[str] = []
    transactions = _load(tmp_path / "data", reports).transactions
    assert reports == []
    assert transactions["committed"].state is State.COMPLETE_COMMIT
    assert transactions["aborted"].state is State.COMPLETE_ABORT
    ongoing = transactions["open"]
    assert ongoing.state is State.ONGOING
    assert ongoing.partitions == {T0, T1}
    assert (ongoing.producer_epoch, ongoing.timeout_ms) == (0, 60_000)
    assert ongoing.updated_ms >= ongoing.started_ms > 0


def _transact(bootstrap: str, name: str) -> Producer:
    """Sends two records in a transaction that ends as named."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("t", b"v", partition=partition)
    producer.flush(180)
    if name == "committed":
        producer.commit_transaction(30)
    elif name == "aborted":
        producer.abort_transaction(30)
    return producer


def _load(data: Path, reports: list[str]) -> TransactionShardState:
    logs = OurLogs(data)
    state = TransactionShardState()
    reader = TransactionsLoader(reports.append)
    for folder, log in logs.logs.items():
        if folder.startswith("__transaction_state-"):
            content = b"".join(batch for _, batch in read_batches(log))
            for record in filter(None, reader.read(content)):
                state.replay(record)
    logs.close()
    return state
