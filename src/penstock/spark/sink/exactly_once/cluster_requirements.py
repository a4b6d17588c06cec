"""What to do where a cluster does not give what exactly-once needs."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from penstock.client.errors import ClientError, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once.decision_log import DECISIONS_TOPIC
from penstock.spark.sink.exactly_once.transactional_ids import PREFIX

MORE_TIME = (
    "let a batch have less (maxOffsetsPerTrigger), or more time (kafka.transaction.timeout.ms and "
    "the brokers' transaction.max.timeout.ms)"
)
AT_LEAST_ONCE = 'or write at least once, with .option("delivery", "at-least-once")'
_MAY_USE_TOPIC = f"allow this user to create, read and write topic {DECISIONS_TOPIC}"
_NEEDED = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "give kafka.transaction.timeout.ms no more than the "
    "brokers' transaction.max.timeout.ms",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this user the transactional ids that "
    f"begin with {PREFIX}",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _MAY_USE_TOPIC,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _MAY_USE_TOPIC,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "let the cluster have as many brokers as its "
    "transaction.state.log.replication.factor says, or lower that",
}
# Of one that was too old the cluster tells nobody but in this way that it has aborted it.
_TIMED_OUT = dict.fromkeys(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    ),
    MORE_TIME,
)


def explaining_requirements() -> AbstractContextManager[None]:
    """Around what a cluster may refuse for being a transaction."""
    return _advising(_NEEDED)


def explaining_timeouts(*, is_timed: bool) -> AbstractContextManager[None]:
    """Around writing in a transaction which the cluster aborts, if it is timed, after a while."""
    return _advising(_TIMED_OUT if is_timed else {})


@contextmanager
def _advising(advice: Mapping[ErrorCode, str]) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        found = _find_advice(advice, error)
        if found is None:
            raise
        raise SparkSourceError(
            f"{error}. Rows are written exactly once, in transactions: {found}; {AT_LEAST_ONCE}"
        ) from error


def _find_advice(advice: Mapping[ErrorCode, str], error: ClientError) -> str | None:
    """By its code, or that of the last attempt."""
    for each in (error, error.__cause__):
        if isinstance(each, RefusedByBroker) and each.code in advice:
            return advice[each.code]
    return None
