"""A client that delays messages in transactions, and says which it has begun and committed.

Run as a process, to be killed: SERVERS TOPIC NAME TRANSACTIONS MESSAGES.
"""

import sys

from confluent_kafka import KafkaError, KafkaException, Producer

DELAY_MS = 500
PAUSE_S = 0.05  # between transactions, because others send, too


def main(servers: str, topic: str, name: str, transactions: int, messages: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": "delays",
            "transaction.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    producer.init_transactions()
    for number in range(transactions):
        transaction = f"{name}/{number}"
        is_committed = False
        while not is_committed:
            is_committed = run_transaction(producer, topic, transaction, messages)
        print(f"committed {transaction}", flush=True)
        producer.poll(PAUSE_S)


def run_transaction(producer: Producer, topic: str, transaction: str, messages: int) -> bool:
    """False: it is aborted, and to be repeated."""
    producer.begin_transaction()
    print(f"begun {transaction}", flush=True)
    for index in range(messages):
        headers: list[tuple[str, str | bytes | None]] = [("penstock-delay-ms", b"%d" % DELAY_MS)]
        producer.produce(
            topic, f"{transaction}/{index}".encode(), headers=headers, partition=index % 3
        )
    while True:
        try:
            producer.commit_transaction()
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if error.txn_requires_abort():
                abort(producer)
                return False
            if not error.retriable():
                raise
        else:
            return True


def abort(producer: Producer) -> None:
    while True:
        try:
            producer.abort_transaction()
        except KafkaException as exception:
            if not exception.args[0].retriable():
                raise
        else:
            return


if __name__ == "__main__":
    servers, topic, name, transactions, messages = sys.argv[1:]
    main(servers, topic, name, int(transactions), int(messages))
