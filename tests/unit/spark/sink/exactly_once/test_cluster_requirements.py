"""Error messages for clusters that cannot or may not run the sink's transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.unit.spark.sink.exactly_once.sink_process import COLUMNS, Work
from tests.unit.spark.sink.exactly_once.sink_state import PROCESS_TIMEOUT_S, work_on

import penstock
from penstock.client.errors import ClientError, OutOfTime, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.cluster_requirements import (
    explaining_requirements,
    explaining_timeouts,
)
from penstock.spark.sink.exactly_once.prepared_write import write_prepared
from penstock.spark.sink.exactly_once.transactional_ids import MicroBatchId

pytestmark = pytest.mark.xdist_group("exactly-once sink")
ALTERNATIVE = r'or write at least once, with \.option\("delivery", "at-least-once"\)'


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "begin with penstock-spark"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic __penstock_spark_commits"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "topic __penstock_spark_commits"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "transaction.state.log.replication.factor"),
    ],
)
@pytest.mark.parametrize("is_last_attempt", [True, False])
def test_missing_requirement_is_explained_with_the_alternative(
    code: ErrorCode, advice: str, is_last_attempt: bool
) -> None:
    refused: ClientError = RefusedByBroker("begin as 'x'", code)
    if is_last_attempt:
        refused, cause = OutOfTime("begin as 'x': not done within 120 s"), refused
        refused.__cause__ = cause
    with (
        pytest.raises(SparkSourceError, match=rf"begin as 'x'.*{advice}.*{ALTERNATIVE}"),
        explaining_requirements(),
    ):
        raise refused


def test_other_errors_pass_unchanged() -> None:
    fenced = RefusedByBroker("write", ErrorCode.PRODUCER_FENCED)
    with (
        pytest.raises(RefusedByBroker),
        explaining_requirements(),
        explaining_timeouts(has_timeout=False),
    ):
        raise fenced


def test_transaction_timeout_above_the_brokers_maximum_is_explained(
    plain_broker: penstock.Broker,
) -> None:
    work = work_on(plain_broker)
    options = work.options._replace(transaction_timeout_ms=900_001)
    rows = pa.record_batch({"value": ["v"]})
    with pytest.raises(SparkSourceError, match=rf"transaction\.max\.timeout\.ms; {ALTERNATIVE}"):
        write_prepared([rows], options, COLUMNS, MicroBatchId(work.query, work.run, 0))


def test_task_slower_than_its_transaction_timeout_is_explained(
    plain_broker: penstock.Broker,
) -> None:
    work = work_on(plain_broker)
    options = work.options._replace(transaction_timeout_ms=200, batch_bytes=0)

    def slow_rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["first"]})
        wait_until_timed_out(work)
        yield pa.record_batch({"value": ["second"]})

    with pytest.raises(SparkSourceError, match=rf"maxOffsetsPerTrigger.*{ALTERNATIVE}"):
        write_prepared(slow_rows(), options, COLUMNS, MicroBatchId(work.query, work.run, 0))


def wait_until_timed_out(work: Work) -> None:
    client = shared_client(ClientSettings(work.servers))
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while time.monotonic() < deadline:
        listed = client.run(
            lambda cluster: cluster.transactions.list_transactions(states=["CompleteAbort"])
        )
        if any(work.query in entry.transactional_id for entry in listed):
            return
        time.sleep(0.01)
    raise AssertionError("it is still open")
