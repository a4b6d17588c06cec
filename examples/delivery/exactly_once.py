"""Exactly once: output and consumed offsets are one transaction. Nothing is lost or duplicated.

From topic to topic. Consumers with isolation="read_committed" do not see the output of a crashed
transaction; the restarted program aborts it and continues at the last commit.
Run it with `python exactly_once.py BOOTSTRAP OUTPUT`, where OUTPUT is a topic.
"""

from by_hand import run
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
            timeout_s=5,
            config={"group.instance.id": "worker-1"},  # rejoins at once after a restart
        ) as consumer,
    ):
        for message in consumer:
            with producer.transaction():
                producer.send_and_wait(output, message.value)
                producer.send_offsets(consumer)
                worst_moment(message)


if __name__ == "__main__":
    run(main)
