"""`penstock.TransactionalProducer`: a producer whose records are committed together, or not at all.

Uses librdkafka's transactions. Invariant: a transaction is committed or aborted before the next one
begins.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError, ProducerFenced, TransactionAbortable
from penstock.client.producer import Producer
from penstock.client.rdkafka import FENCED_CODES

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

DEFAULT_TIMEOUT_S = 60.0


class TransactionalProducer(Producer):
    """A producer with a transactional id. It fences older producers with the same id and aborts
    their open transactions, as is needed after a restart.

    `with producer.transaction(): ...` commits at its end, or aborts if an exception leaves it.
    Consumers with isolation="read_committed" see all of it or nothing.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        transactional_id: str,
        transaction_timeout_ms: int = 60_000,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of `Producer`; `timeout_s` bounds the initialization, which fences
        older producers."""
        settings = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            # Not above the transaction timeout, or librdkafka refuses to begin.
            "message.timeout.ms": min(
                transaction_timeout_ms, options.pop("delivery_timeout_ms", 120_000)
            ),
            **(config or {}),
        }
        self.transactional_id = transactional_id
        self._in_transaction = threading.Lock()  # held from begin to commit or abort
        super().__init__(bootstrap_servers, config=settings, **options)
        try:
            self._step("begin", lambda: self._producer.init_transactions(timeout_s))
        except BaseException:
            self.close(0)
            raise

    @contextmanager
    def transaction(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Self]:
        """One transaction. An exception of the body is re-raised after the abort."""
        self.begin()
        try:
            yield self
            self.commit(timeout_s)
        except ProducerFenced:
            raise  # nothing is left to abort
        except BaseException:
            self.abort(timeout_s)
            raise

    def begin(self) -> None:
        self._check_open()
        if not self._in_transaction.acquire(blocking=False):
            raise TransactionAbortable(
                f"{self.transactional_id!r} has a transaction already: commit or abort it first"
            )
        try:
            self._step("begin a transaction", self._producer.begin_transaction)
        except BaseException:
            self._in_transaction.release()
            raise

    def send_offsets(self, consumer: Consumer, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Commit the consumer's position, after the messages returned so far, as part of the
        transaction. The consumer needs a group and auto_commit=False."""
        reached = consumer.reached()
        if not reached:
            return
        places = [Place(*partition, offset) for partition, offset in reached.items()]
        group = consumer.group_metadata()
        self._step(
            "send offsets",
            lambda: self._producer.send_offsets_to_transaction(places, group, timeout_s),
        )

    def commit(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Wait for every record, then commit. After TransactionAbortable, abort."""
        self._step("commit", lambda: self._producer.commit_transaction(timeout_s))
        self._in_transaction.release()

    def abort(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Abort: read_committed consumers will see none of its records."""
        try:
            self._step("abort", lambda: self._producer.abort_transaction(timeout_s))
        finally:
            if self._in_transaction.locked():
                self._in_transaction.release()

    def close(self, timeout_s: float | None = None) -> None:
        """An open transaction is aborted."""
        if self._in_transaction.locked():
            with suppress(ClientError):
                self.abort(DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s)
        super().close(timeout_s)

    def _step(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._explain(what, error.args[0]) from error

    def _explain(self, what: str, reason: "KafkaError") -> ClientError:
        text = f"{self.transactional_id!r} could not {what}: {reason.str()}"
        if reason.code() in FENCED_CODES:
            return ProducerFenced(f"{text}; a newer producer has taken over, close this one")
        if reason.txn_requires_abort():
            return TransactionAbortable(f"{text}; abort it, then try again in a new one")
        return TransactionAbortable(self._trouble.explain(text))
