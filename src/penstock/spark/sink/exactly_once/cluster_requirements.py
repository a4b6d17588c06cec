"""Turns a cluster's refusals of exactly-once requests into errors that say what to do."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from penstock.client.errors import ClientError, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.decision_log import DECISIONS_TOPIC
from penstock.spark.sink.exactly_once.transactional_ids import LEASES_TOPIC, PREFIX

ALLOW_MORE_TIME = (
    "make batches smaller (maxOffsetsPerTrigger), or allow more time (kafka.transaction.timeout.ms "
    "and the brokers' transaction.max.timeout.ms)"
)
AT_LEAST_ONCE = 'or write at least once, with .option("delivery", "at-least-once")'
_ALLOW_TOPIC = (
    f"allow this user to create, read and write topic {DECISIONS_TOPIC}, and to create and write "
    f"topic {LEASES_TOPIC}"
)
_REQUIREMENTS = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "set kafka.transaction.timeout.ms to at most the "
    "brokers' transaction.max.timeout.ms",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this user the transactional ids that "
    f"begin with {PREFIX}",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ALLOW_TOPIC,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _ALLOW_TOPIC,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "start as many brokers as "
    "transaction.state.log.replication.factor requires, or lower it",
}
# The only signs of a transaction that the cluster has aborted because it timed out.
_TIMED_OUT = dict.fromkeys(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    ),
    ALLOW_MORE_TIME,
)


def explaining_requirements() -> AbstractContextManager[None]:
    """Wraps requests that a cluster may refuse because they are transactional."""
    return _explaining(_REQUIREMENTS)


def explaining_timeouts(*, has_timeout: bool) -> AbstractContextManager[None]:
    """Wraps writes of a transaction, which the cluster aborts after a while if it has a timeout."""
    return _explaining(_TIMED_OUT if has_timeout else {})


@contextmanager
def _explaining(advice_by_code: Mapping[ErrorCode, str]) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        advice = _find_advice(advice_by_code, error)
        if advice is None:
            raise
        raise SparkSourceError(
            f"{error}. Rows are written exactly once, in transactions: {advice}; {AT_LEAST_ONCE}"
        ) from error


def _find_advice(advice_by_code: Mapping[ErrorCode, str], error: ClientError) -> str | None:
    """Find advice by the error's code, or by that of the last attempt."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, RefusedByBroker) and candidate.code in advice_by_code:
            return advice_by_code[candidate.code]
    return None
