"""Exactly once: what is done and how far it has come are one transaction. Neither lost nor doubled.

From topic to topic. Who reads the output with isolation="read_committed" sees nothing of what a
crash has left; the next life of this program aborts it, and begins where the last commit ended.
Run it with `python exactly_once.py BOOTSTRAP OUTPUT`, where OUTPUT is a topic.
"""

import sys

from worst_moment import worst_moment

import penstock


def main(bootstrap: str, output: str) -> None:
    with (
        penstock.TransactionalProducer(bootstrap, transactional_id="worker-1") as producer,
        penstock.Consumer(
            "payments",
            bootstrap_servers=bootstrap,
            group="exactly-once",
            from_beginning=True,
            auto_commit=False,
            isolation="read_committed",
            timeout_s=2,
            config={"group.instance.id": "worker-1"},  # back at once after a restart
        ) as consumer,
    ):
        for message in consumer:
            with producer.transaction():
                producer.send_and_wait(output, message.value)
                producer.send_offsets(consumer)
                worst_moment(message)


if __name__ == "__main__":
    main(*sys.argv[1:])
