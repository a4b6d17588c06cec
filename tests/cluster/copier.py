"""Copies a topic to another in transactions, with its offsets in them, as a member of a group:
`python -m tests.cluster.copier SERVERS GROUP SOURCE TARGET NAME`. Exits with success on SIGTERM.

Prints `open` before each commit, so that a test that kills it knows its state. A failed transaction
is aborted and copied again. A step that takes too long ends the process with SIGALRM, and NAME may
be restarted: librdkafka waits forever for a group coordinator that has left the metadata, whatever
the timeout (its issues 5511 and 5456).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

MOST = 400  # maximum number of records in a transaction
POLL_S = 0.05
STEP_S = 30.0
GIVE_UP_S = 12  # longer than it takes to elect leaders after a kill
TRANSACTION_MS = 20_000
SESSION_MS = 6_000


class Copier:
    def __init__(self, servers: str, group: str, source: str, target: str, name: str) -> None:
        self._target = target
        self._is_stopping = False
        self._taken: list[Any] = []  # read, not copied yet; dropped when revoked
        common: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self._producer = Producer(
            {
                **common,
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "message.timeout.ms": TRANSACTION_MS,
                "linger.ms": 2,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": SESSION_MS // 6,
            }
        )
        self._consumer.subscribe([source], on_revoke=self._drop, on_lost=self._drop)

    def stop(self, *_: object) -> None:
        self._is_stopping = True

    def run(self) -> None:
        _persist(lambda: self._producer.init_transactions(STEP_S))
        while not self._is_stopping:
            self._take()
            if self._taken:
                signal.alarm(GIVE_UP_S)
                self._copy()
                signal.alarm(0)
        signal.alarm(GIVE_UP_S)
        self._consumer.close()

    def _drop(self, *_: object) -> None:
        self._taken.clear()

    def _take(self) -> None:
        message = self._consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                self._taken.append(message)
            elif error.fatal():
                raise KafkaException(error)
            if len(self._taken) >= MOST:
                return
            message = self._consumer.poll(0)

    def _copy(self) -> None:
        taken, self._taken = self._taken, []
        try:
            self._copy_in_transaction(taken)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _persist(lambda: self._producer.abort_transaction(STEP_S))
            self._rewind()

    def _copy_in_transaction(self, taken: list[Any]) -> None:
        producer = self._producer
        producer.begin_transaction()
        for message in taken:
            producer.produce(self._target, message.value(), message.key(), message.partition())
        reached = {
            message.partition(): message for message in taken
        }.values()  # the last record of each partition
        places = [TopicPartition(e.topic(), e.partition(), e.offset() + 1) for e in reached]
        group = self._consumer.consumer_group_metadata()
        _persist(lambda: producer.send_offsets_to_transaction(places, group, STEP_S))
        print("open", flush=True)
        _persist(lambda: producer.commit_transaction(STEP_S))

    def _rewind(self) -> None:
        """Seeks to the group's committed offsets, so that aborted records are read again."""
        owned = self._consumer.assignment()
        if owned:
            for committed in self._consumer.committed(owned, timeout=STEP_S):
                start = max(committed.offset, 0)
                self._consumer.seek(TopicPartition(committed.topic, committed.partition, start))


def _persist(call: Callable[[], object]) -> None:
    """Retries as long as librdkafka says that the call may still succeed."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def main() -> None:
    copier = Copier(*sys.argv[1:])
    signal.signal(signal.SIGTERM, copier.stop)
    copier.run()
    os._exit(0)  # because librdkafka's close may wait for the same coordinator


if __name__ == "__main__":
    main()
